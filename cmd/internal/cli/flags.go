package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// given lists the variables that "run" sets for its command. They do not set flags: a tool called
// within a run must not take them for its own.
var given = map[string]bool{"lock": true, "token": true, "session": true}

// twin returns the name of the variable that sets a flag when the command line does not.
func twin(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fill sets the flags that the command line did not, from the environment and the configuration
// file.
func (a *App) fill(cmd *cobra.Command) error {
	a.warnOfVariables(cmd.Root())
	return a.fillIn(cmd)
}

func (a *App) fillIn(cmd *cobra.Command) error {
	if err := a.fillFromEnvironment(cmd.Flags(), decided(cmd.Flags())); err != nil {
		return err
	}
	if path, err := cmd.Flags().GetString("config"); err == nil && path != "" {
		if err := fillFromFile(cmd, path); err != nil {
			return err
		}
	}
	return checkChoices(cmd.Flags())
}

// choice is the annotation of mutually exclusive flags; its value names what is chosen. Once one of
// them is set, the others are ignored in sources of lower rank.
const choice = "choice"

// oneOf makes flags mutually exclusive.
func oneOf(flags *pflag.FlagSet, what string, names ...string) {
	for _, name := range names {
		flags.SetAnnotation(name, choice, []string{what})
	}
}

// explicit is the annotation of flags that can only be set on the command line. Elsewhere they are
// ignored, because another command has a flag of the same name, or refused.
const explicit = "explicit"

func onlyOnCommandLine(flags *pflag.FlagSet, name string, elsewhere ...string) {
	flags.SetAnnotation(name, explicit, elsewhere)
}

const (
	ignored = "ignored"
	refused = "refused"
)

// refusedElsewhere reports whether a flag that is set anywhere but on the command line is an error.
func refusedElsewhere(f *pflag.Flag) bool { return slices.Contains(f.Annotations[explicit], refused) }

var errOnlyOnCommandLine = errors.New("can only be given on the command line")

func choiceOf(f *pflag.Flag) string {
	if a := f.Annotations[choice]; len(a) > 0 {
		return a[0]
	}
	return f.Name
}

// decided returns the choices made so far.
func decided(flags *pflag.FlagSet) map[string]bool {
	made := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { made[choiceOf(f)] = true })
	return made
}

// checkChoices rejects two flags of one choice that were set at the same rank.
func checkChoices(flags *pflag.FlagSet) error {
	first := map[string]string{}
	var failed error
	flags.Visit(func(f *pflag.Flag) {
		what := choiceOf(f)
		if f.Value.String() == "false" || failed != nil {
			return
		}
		if other := first[what]; other != "" {
			failed = usageError("--%s and --%s are mutually exclusive", other, f.Name)
		}
		first[what] = f.Name
	})
	return failed
}

func (a *App) fillFromEnvironment(flags *pflag.FlagSet, made map[string]bool) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		value := a.Getenv(twin(f.Name))
		if value != "" && refusedElsewhere(f) {
			failed = usageError("%s: --%s %w", twin(f.Name), f.Name, errOnlyOnCommandLine)
			return
		}
		if made[choiceOf(f)] || value == "" || !fromOutside(f) || failed != nil || linked(twin(f.Name), value) {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = usageError("%s: invalid value %q in the environment: %w", twin(f.Name), value, innermost(err))
		}
	})
	return failed
}

// fromOutside reports whether a flag may be set from the environment or a file.
func fromOutside(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "version" && !given[f.Name] && f.Annotations[explicit] == nil
}

// innermost strips the text that pflag adds, which names a flag that nobody gave.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// fillFromFile reads one YAML mapping from flag names to values. One file may serve all commands,
// so a key may be a flag of any of them.
func fillFromFile(cmd *cobra.Command, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return usageError("--config: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return usageError("--config: %s: %w", path, err)
	}
	if document.Kind == 0 { // an empty file
		return nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return usageError("--config: %s:%d: must contain lines of the form \"flag: value\"", path, top.Line)
	}
	known, seen, made := allFlags(cmd.Root()), map[string]bool{}, decided(cmd.Flags())
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		name := strings.ReplaceAll(key.Value, "_", "-")
		switch {
		case !known[name]:
			return usageError("--config: %s:%d: unknown key %q", path, key.Line, key.Value)
		case seen[name]:
			return usageError("--config: %s:%d: duplicate key %q", path, key.Line, key.Value)
		}
		seen[name] = true
		if err := setFromNode(cmd.Flags(), made, name, value); err != nil {
			return usageError("--config: %s:%d: %s: %w", path, key.Line, key.Value, err)
		}
	}
	return nil
}

func setFromNode(flags *pflag.FlagSet, made map[string]bool, name string, node *yaml.Node) error {
	text, err := flatten(node)
	if err != nil {
		return err
	}
	f := flags.Lookup(name)
	switch {
	case f != nil && refusedElsewhere(f):
		return errOnlyOnCommandLine
	case f == nil || made[choiceOf(f)] || f.Annotations[explicit] != nil:
		return nil
	}
	if err := flags.Set(name, text); err != nil {
		return fmt.Errorf("invalid value %q: %w", text, innermost(err))
	}
	return nil
}

// flatten writes a node as it would be on a command line: a list with commas, a mapping as k=v with
// commas.
func flatten(node *yaml.Node) (string, error) {
	if node.Kind == yaml.ScalarNode {
		return node.Value, nil
	}
	var parts []string
	for i, child := range node.Content {
		if child.Kind != yaml.ScalarNode {
			return "", errors.New("must be a value, a list of values or a mapping of values")
		}
		if node.Kind == yaml.MappingNode && i%2 == 1 {
			parts[len(parts)-1] += "=" + child.Value
			continue
		}
		parts = append(parts, child.Value)
	}
	return strings.Join(parts, ","), nil
}

// allFlags returns the flags that a file may set, of every command.
func allFlags(root *cobra.Command) map[string]bool {
	names := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	delete(names, "config")
	delete(names, "help")
	return names
}
