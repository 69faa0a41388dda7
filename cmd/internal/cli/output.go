package cli

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// An output is the value of -o.
type output string

const (
	textOutput output = "text"
	jsonOutput output = "json"
)

func (o *output) register(flags *pflag.FlagSet) {
	*o = textOutput
	flags.VarP(o, "output", "o", "output `format`: text or json")
}

// String, Set and Type implement pflag.Value.
func (o *output) String() string { return string(*o) }

func (o *output) Set(text string) error {
	switch output(text) {
	case textOutput, jsonOutput:
		*o = output(text)
		return nil
	default:
		return fmt.Errorf("must be text or json")
	}
}

func (o *output) Type() string { return "format" }

// writeJSON prints v with indentation.
func (a *App) writeJSON(v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", escapeJSON(text))
	return err
}

// writeJSONLine prints v on one line.
func (a *App) writeJSONLine(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s\n", escapeJSON(text))
	return err
}

// table starts a table on the output. Cells are separated by tabs.
func (a *App) table() *tabwriter.Writer { return tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0) }
