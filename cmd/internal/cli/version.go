package cli

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

type versionReport struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Built    string `json:"built,omitempty"` // time of the last change to the source
}

func (a *App) versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Example: "  lockstep version -o json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			return a.printVersion(out)
		},
	}
	out.register(cmd.Flags())
	return cmd
}

func (a *App) printVersion(out output) error {
	report := versionReport{Version: Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if t := BuildTime(); !t.IsZero() {
		report.Built = instant{t}.String()
	}
	if out == jsonOutput {
		return a.writeJSON(report)
	}
	_, err := fmt.Fprintf(a.Out, "lockstep %s %s %s\n", report.Version, report.Platform, report.Go)
	return err
}

// BuildTime is the time of the last change to the source of this build, or zero if unknown.
func BuildTime() time.Time {
	seconds, err := strconv.ParseInt(builtUnix, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
