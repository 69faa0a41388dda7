package cli

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherWords are the names that some of our commands have in other programs.
var otherWords = map[string]string{
	"list": "ls", "locks": "ls", "dir": "ls", "ps": "sessions", "clients": "sessions", "unlock": "release", "free": "release", "flock": "run", "exec": "run",
	"info": "show", "get": "show", "describe": "show", "who": "show", "log": "history", "events": "watch", "tail": "watch",
	"kill": "revoke", "steal": "revoke", "break": "revoke", "refresh": "renew", "extend": "renew", "keepalive": "renew",
	"leader": "elect", "members": "member", "nodes": "status", "health": "status", "serve": "server", "start": "server",
	"backup": "snapshot", "restore": "snapshot restore", "save": "snapshot save",
	"rm": "remove", "delete": "remove", "del": "remove", "create": "add", "transfer": "lead",
}

// unknownCommand is the error for a word that is not a command below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	hint := ""
	if near := nearCommand(cmd, word); near != "" {
		hint = fmt.Sprintf(` did you mean "%s %s"?`, cmd.CommandPath(), near)
	}
	return usageError(`unknown command %q:%s see "%s --help"`, word, hint, cmd.CommandPath())
}

func nearCommand(cmd *cobra.Command, word string) string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
			names = append(names, c.Aliases...)
		}
	}
	if other, ok := otherWords[strings.ToLower(word)]; ok && slices.Contains(names, strings.Fields(other)[0]) {
		return other
	}
	return nearest(strings.ToLower(word), names)
}

// subcommands is the action of a command that only has subcommands.
func subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError(`no command given: see "%s --help"`, cmd.CommandPath())
	}
	return unknownCommand(cmd, args[0])
}

// nearest returns the word that a typo most probably stands for, or "".
func nearest(word string, words []string) string {
	best, least := "", 1+max(1, min(3, len(word)/3))
	for _, w := range words {
		if d := editDistance(word, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// editDistance is the number of characters to insert, delete, replace or swap with the next one.
func editDistance(a, b string) int {
	var before, last []int
	for j := range len(b) + 1 {
		last = append(last, j)
	}
	for i := range len(a) {
		row := []int{i + 1}
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			d := min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row = append(row, d)
		}
		before, last = last, row
	}
	return last[len(b)]
}

// serviceLink matches the variables that Kubernetes sets in every container for a Service whose
// name begins with "lockstep".
var serviceLink = regexp.MustCompile(`^LOCKSTEP_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// linked reports whether a variable is such a link, and not a value of the flag with the same name,
// such as LOCKSTEP_PORT of dev.
func linked(name, value string) bool {
	return serviceLink.MatchString(name) && (name != twin("port") || strings.Contains(value, "://"))
}

// variablePrefix is the prefix of our variables.
const variablePrefix = "LOCKSTEP_"

// warnOfVariables lists the variables that look like ours but have no effect: otherwise a typo
// would go unnoticed.
func (a *App) warnOfVariables(root *cobra.Command) {
	if a.Environ == nil {
		return
	}
	known, flags := variables(root), allFlags(root)
	for _, entry := range a.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		own := strings.TrimPrefix(name, variablePrefix)
		if own == name || known[own] || linked(name, value) || strings.HasPrefix(own, "TEST_") {
			continue
		}
		hint := "no flag has this name"
		if flags[strings.ReplaceAll(strings.ToLower(own), "_", "-")] {
			hint = "its flag " + errOnlyOnCommandLine.Error()
		}
		if near := nearest(own, slices.Sorted(maps.Keys(known))); near != "" {
			hint = "did you mean " + variablePrefix + near + "?"
		}
		fmt.Fprintf(a.Err, "lockstep: the variable %s has no effect: %s\n", printable(name), hint)
	}
}

// variables returns the names, without prefix, that any command reads or sets.
func variables(root *cobra.Command) map[string]bool {
	known := map[string]bool{}
	// The last two say where demo finds these programs.
	heeded := []string{handleVariable, heldVariable, twin("config"), "LOCKSTEP_ETCD", "LOCKSTEP_VERSITYGW"}
	for _, name := range heeded {
		known[strings.TrimPrefix(name, variablePrefix)] = true
	}
	for name := range given {
		known[strings.TrimPrefix(twin(name), variablePrefix)] = true
	}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Annotations[explicit] == nil {
				known[strings.TrimPrefix(twin(f.Name), variablePrefix)] = true
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return known
}
