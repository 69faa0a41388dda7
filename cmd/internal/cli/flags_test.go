package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstep-dev/lockstep"
)

// invoke runs a command line in this process.
func invoke(env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	app := &App{Out: &out, Err: &errs, Getenv: func(key string) string { return env[key] }, OpenLocker: openLocker}
	app.Environ = func() (list []string) {
		for _, key := range slices.Sorted(maps.Keys(env)) {
			list = append(list, key+"="+env[key])
		}
		return list
	}
	code = app.Main(context.Background(), args)
	return code, out.String(), errs.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lockstep.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsComeBeforeTheEnvironmentBeforeTheFileBeforeDefaults(t *testing.T) {
	config := file(t, "name: from-file\ndata_dir: from-file\nlisten: 127.0.0.1:1\ninitial-cluster:\n  n1: 127.0.0.1:2\n  n2: 127.0.0.1:3\nttl: 20 # of another command\n")
	env := map[string]string{"LOCKSTEP_NAME": "from-env", "LOCKSTEP_DATA_DIR": "from-env", "LOCKSTEP_CONFIG": config}
	code, out, errs := invoke(env, "server", "--name", "from-flag", "--print-config")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"name: from-flag\n", "data-dir: from-env\n", "listen: 127.0.0.1:1\n", "    - n1=127.0.0.1:2\n", "peer-listen: 127.0.0.1:7401\n", "insecure: false\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
	again := file(t, out)
	if _, second, _ := invoke(nil, "server", "--config", again, "--print-config"); second != out {
		t.Errorf("what --print-config prints comes to\n%s\nwhen it is read again, want\n%s", second, out)
	}
}

func TestACommandLineOverridesAChoiceOfTheEnvironment(t *testing.T) {
	env := map[string]string{"LOCKSTEP_WAIT": "5", "LOCKSTEP_BACKEND": "redis://x"}
	code, _, errs := invoke(env, "run", "-n", "--endpoints", "127.0.0.1:1", "--connect-timeout", "0.05", "x", "--", "true")
	if code != CodeUnavailable {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, _ := invoke(nil, "run", "-n", "-w", "5", "x", "--", "true"); code != CodeUsage {
		t.Errorf("-n and -w: exit code %d, want %d", code, CodeUsage)
	}
}

func TestAWrongConfigurationFileIsRefusedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"nmae: n1", `:1: unknown key "nmae"`},
		{"name: n1\n\nname: n2", `:3: duplicate key "name"`},
		{"- name", `:1: must contain lines of the form`},
		{"name: {a: [b]}", `:1: name: must be a value`},
		{"name: 'n1", "found unexpected end of stream"},
		{"\n\ninsecure: perhaps", `:3: insecure: invalid value "perhaps"`},
	} {
		code, _, errs := invoke(nil, "server", "--config", file(t, c.text), "--print-config")
		if code != CodeUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d, stderr %q, want %d and %q", c.text, code, errs, CodeUsage, c.want)
		}
		oneLineOf(t, errs)
	}
	if code, _, _ := invoke(nil, "server", "--config", "/no/such/file"); code != CodeUsage {
		t.Errorf("a missing file: exit code %d", code)
	}
	if code, _, errs := invoke(nil, "server", "--config", file(t, ""), "--print-config"); code != 0 {
		t.Errorf("an empty file: exit code %d: %s", code, errs)
	}
}

func TestBadInputIsToldInWordsThatHelp(t *testing.T) {
	for line, want := range map[string]string{
		"run --endpoints http://127.0.0.1:1 x -- true": `lockstep: run: --endpoints: "http://127.0.0.1:1": must be host:port, such as 127.0.0.1:7400, without a scheme` + "\n",
		"run a//b -- true": `lockstep: run: name "a//b": must not begin or end with "/" or contain "//"` + "\n",
	} {
		if _, _, errs := invoke(nil, strings.Fields(line)...); errs != want {
			t.Errorf("lockstep %s: %q, want %q", line, errs, want)
		}
	}
}

func TestWhoeverNamedNoServiceIsToldHow(t *testing.T) {
	show := func(args ...string) *cobra.Command {
		command, _, err := NewApp().root().Find([]string{"show"})
		if err == nil {
			err = command.ParseFlags(args)
		}
		if err != nil {
			t.Fatal(err)
		}
		return command
	}
	if err := advise(show(), lockstep.ErrUnavailable); !strings.Contains(err.Error(), "--endpoints") || !errors.Is(err, lockstep.ErrUnavailable) {
		t.Errorf("without --endpoints: %v", err)
	}
	for _, err := range []error{
		advise(show("--endpoints", "a:1"), lockstep.ErrUnavailable),
		advise(show("--backend", "lockstep://a:1"), lockstep.ErrUnavailable),
		advise(show(), lockstep.ErrBusy),
	} {
		if strings.Contains(err.Error(), "--endpoints") {
			t.Errorf("advice that nobody needs: %v", err)
		}
	}
}

func TestEveryBadInputIsOneLineAndCode64(t *testing.T) {
	for _, line := range []string{
		"", "bogus", "--bogus", "help bogus",
		"run", "run x", "run x true", "run x --", "run -- x --", "run --bogus x -- true", "run a//b -- true", "run _sys/x -- true", "run -c true x -- true",
		"run --endpoints foo x -- true", "run --endpoints ::1:22 x -- true", "run --endpoints a:0 x -- true", "run --endpoints a:65536 x -- true",
		"run --endpoints [::1 x -- true", "run --endpoints [nonsense]:1 x -- true", "run --endpoints http://a:1 x -- true", "run --endpoints a:1,, x -- true",
		"run --backend redis://a:b:c x -- true", "run --backend nonsense x -- true", "run --backend x://y x -- true", "run --backend lockstep:// x -- true",
		"run --ttl 0 x -- true", "run --ttl 301 x -- true", "run --ttl -1s x -- true", "run --ttl 1e300 x -- true", "run --ttl NaN x -- true",
		"run --kill-after 5 x -- true", "run --kill-after nonsense x -- true",
		"run -w -1 x -- true", "run -w 99999999999 x -- true", "run -n -w 3 x -- true", "run -s -x x -- true", "run -s --permits 1/2 x -- true",
		"run --permits 3/2 x -- true", "run --permits 0/2 x -- true", "run --permits 2 x -- true", "run -E 256 x -- true", "run -E -1 x -- true",
		"run --end-with nonsense x -- true", "run --purpose \x1b x -- true", "run --connect-timeout 0 x -- true",
		"show", "show a b", "show a/../b", "show -o xml x", "show --waiters 0 x", "ls a b", "ls --page-size 0", "ls --limit -1",
		"acquire", "acquire a b", "acquire a//b", "acquire --ttl 0 x", "acquire -n -w 3 x", "acquire --permits 2 x", "acquire -o xml x", "acquire --handle-file /no/such/folder/h x",
		"renew", "renew a-handle", "renew --handle-file /no/such/file", "release", "release a-handle", "release --handle-file /",
		"hold", "hold a b", "hold a//b", "hold --end-with nonsense x", "hold --purpose \x1b x", "hold -E 256 x",
		"sessions extra", "sessions --page-size 0", "sessions --page-size 1001", "sessions --limit -1", "watch a b", "watch --after -1", "watch -o xml",
		"completion", "completion tcsh", "completion bash zsh", "bench --duration nonsense",
		"fence", "fence show", "fence show x", "fence show x --guard report", "fence show x --guard redis://a:b:c", "fence show ../x --guard file:///tmp", "fence show x --guard file:///tmp --marks m",
		"fence show x --guard redis://127.0.0.1:1 --marks {}", "fence show x --guard file:///tmp --connect-timeout 0", "fence reset x --guard file:///tmp", "fence reset --guard file:///tmp --to-lock y",
		"fence reset x --guard file:///tmp --to-lock y --seen -1", "fence show x -o xml --guard file:///tmp",
		"revoke x", "revoke --reason", "history a//b", "history --limit 0 x",
		"server", "server --name a/b --data-dir d", "server --name n1 --data-dir d --listen 0.0.0.0:1", "server --name n1 --data-dir d --initial-cluster n1", "server --name n1 --data-dir d",
		"server --name n1 --data-dir d --initial-cluster n1=a:1,n1=a:2", "server --name n1 --data-dir d --initial-cluster n2=127.0.0.1:1",
		"keygen", "keygen x", "keygen secret", "keygen secret /", "keygen secret /no/such/folder/f", "server --name n1 --data-dir d --log-level loud", "server --name n1 --data-dir d --log-format xml", "server --name n1 --data-dir d --cluster-secret-file /no/such/file", "server extra",
		"dev --nodes 0", "dev --port 65535", "dev --port 0 --data-dir d", "dev extra", "sim --seeds 0", "sim --nodes 4", "sim --clients 51", "sim --without nonsense", "bench --workload cold", "bench --workers 0", "bench --workers 1 --clients 2", "bench --duration 10ms", "bench --ttl 10ms", "status extra", "version extra", "version -o xml",
	} {
		code, out, errs := invoke(nil, strings.Fields(line)...)
		if code != CodeUsage {
			t.Errorf("lockstep %s: exit code %d, want %d; %s", line, code, CodeUsage, errs)
		}
		if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "lockstep: ") || strings.ContainsFunc(strings.TrimSuffix(errs, "\n"), unprintable) {
			t.Errorf("lockstep %s: want one printable line, got %q", line, errs)
		}
		if out != "" {
			t.Errorf("lockstep %s: printed %q", line, out)
		}
	}
}

func TestGoodEndpoints(t *testing.T) {
	for _, e := range []string{"127.0.0.1:7400", "[::1]:7400", "[fe80::1%eth0]:1", "node-1.example.org:65535", "localhost:1"} {
		if err := checkEndpoint("--endpoints", e); err != nil {
			t.Error(err)
		}
	}
	f := targetFlags{backend: "lockstep://[::1]:1,b:2/", connect: span{1, true}}
	got, err := f.target()
	if err != nil || strings.Join(got.Endpoints, " ") != "[::1]:1 b:2" {
		t.Errorf("got %v, %v", got.Endpoints, err)
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example or no short description", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(NewApp().root())
	for _, args := range [][]string{{"--help"}, {"help", "run"}, {"run", "--help"}, {"server", "-h"}} {
		if code, out, errs := invoke(nil, args...); code != 0 || !strings.Contains(out, "Examples:") || errs != "" {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}

func TestASecretIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if code, out, errs := invoke(nil, "keygen", "secret", path); code != 0 || out != "" || errs != "" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	made, err := os.ReadFile(path)
	if err != nil || len(made) != 65 {
		t.Errorf("%d bytes, want 64 and a line end: %v", len(made), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	code, _, errs := invoke(nil, "keygen", "secret", path)
	if again, err := os.ReadFile(path); code != CodeUsage || !strings.Contains(errs, "never overwritten") || !bytes.Equal(made, again) {
		t.Errorf("a second time: exit code %d, %q, %v", code, errs, err)
	}
	other := filepath.Join(t.TempDir(), "secret")
	if code, _, _ := invoke(nil, "keygen", "secret", other); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if second, err := os.ReadFile(other); err != nil || bytes.Equal(made, second) {
		t.Errorf("two secrets are the same: %v", err)
	}
}

func TestACommandThatNeedsASecretSaysHow(t *testing.T) {
	three := "server --name n1 --data-dir d --insecure --initial-cluster n1=127.0.0.1:7401,n2=127.0.0.1:7411,n3=127.0.0.1:7421"
	short := file(t, strings.Repeat("x", 31))
	for line, says := range map[string]string{
		three: "--cluster-secret-file: is required for a cluster of 3 nodes",
		three + " --cluster-secret-file " + short:                             "keygen secret",
		"server --name n1 --data-dir d --insecure --peer-listen 0.0.0.0:7401": `--peer-listen "0.0.0.0:7401"`,
		three + " --join " + strings.Repeat("a", 32):                          "--cluster-secret-file",
	} {
		if code, _, errs := invoke(nil, strings.Fields(line)...); code != CodeUsage || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d, %q, want %q in it", line, code, errs, says)
		}
	}
}

func TestNothingUnprintableReachesTheTerminal(t *testing.T) {
	evil := "a\x1b[2J\u202e\u009b\U000e0001\xff\n"
	for _, text := range []string{printable(evil), oneLine(evil)} {
		if strings.ContainsFunc(text, unprintable) {
			t.Errorf("%q", text)
		}
	}
	value := map[string]string{"name": "a\x1b\u202e\u009b\U000e0001é"}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	escaped := escapeJSON(raw)
	if strings.ContainsFunc(string(escaped), unprintable) {
		t.Errorf("%q", escaped)
	}
	var back map[string]string
	if err := json.Unmarshal(escaped, &back); err != nil || back["name"] != value["name"] {
		t.Errorf("%q comes back as %q, %v", value, back, err)
	}
}

func TestEveryFlagWithATimeTakesSeconds(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" && !c.Hidden {
				t.Errorf("%s --%s takes no plain seconds", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(NewApp().root())
}

func TestSpans(t *testing.T) {
	for text, want := range map[string]string{"2.5": "2.5s", "0": "0s", "1m30s": "1m30s", "250ms": "250ms", "1e1": "10s"} {
		if got, err := parseSpan(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "-1s", "NaN", "Inf", "1e19", "x", "1 s"} {
		if got, err := parseSpan(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

// oneLineOf fails unless text is a single line.
func oneLineOf(t *testing.T, text string) {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("want one line, got %q", text)
	}
}

func TestASaveTakesItsDirectoryFromTheCommandLineAlone(t *testing.T) {
	dir := t.TempDir()
	config := file(t, "data_dir: "+dir+"\n")
	backup := filepath.Join(t.TempDir(), "b")
	for what, args := range map[string][]string{"the environment": nil, "a file": {"--config", config}} {
		args = append(args, "snapshot", "save", backup, "--connect-timeout", "0.05", "--endpoints", "127.0.0.1:1")
		code, _, errs := invoke(map[string]string{"LOCKSTEP_DATA_DIR": dir}, args...)
		if code != CodeUnavailable || !strings.Contains(errs, "127.0.0.1:1 refuses connections") {
			t.Errorf("%s: exit code %d: %s", what, code, errs)
		}
	}
	if code, _, errs := invoke(nil, "snapshot", "save", backup, "--data-dir", dir, "--endpoints", "127.0.0.1:1"); code != CodeUsage || !strings.Contains(errs, "mutually exclusive") {
		t.Errorf("both: exit code %d: %s", code, errs)
	}
}

func TestMistypedAndOtherWordsAreAnsweredWithTheCommandThatIsMeant(t *testing.T) {
	for line, want := range map[string]string{
		"runn x":          `did you mean "lockstep run"?`,
		"hsitory x":       `did you mean "lockstep history"?`,
		"list":            `did you mean "lockstep ls"?`,
		"ps":              `did you mean "lockstep sessions"?`,
		"unlock":          `did you mean "lockstep release"?`,
		"restore":         `did you mean "lockstep snapshot restore"?`,
		"member remov n1": `did you mean "lockstep member remove"?`,
		"member rm n1":    `did you mean "lockstep member remove"?`,
		"snapshot sav":    `did you mean "lockstep snapshot save"?`,
		"fence rest":      `did you mean "lockstep fence reset"?`,
		"frobnicate":      `unknown command "frobnicate": see "lockstep --help"`,
		"member":          `see "lockstep member --help"`,
	} {
		code, _, errs := invoke(nil, strings.Fields(line)...)
		if code != CodeUsage || !strings.Contains(errs, want) {
			t.Errorf("lockstep %s: exit code %d, %q, want %q", line, code, errs, want)
		}
	}
}

func TestVariablesWithoutEffectAreWarnedOf(t *testing.T) {
	for entry, want := range map[string]string{
		"LOCKSTEP_ENDPOINT=10.0.0.1:7400":             "lockstep: the variable LOCKSTEP_ENDPOINT has no effect: did you mean LOCKSTEP_ENDPOINTS?\n",
		"LOCKSTEP_CONECT_TIMEOUT=3":                   "lockstep: the variable LOCKSTEP_CONECT_TIMEOUT has no effect: did you mean LOCKSTEP_CONNECT_TIMEOUT?\n",
		"LOCKSTEP_ALSO=b":                             "lockstep: the variable LOCKSTEP_ALSO has no effect: its flag can only be given on the command line\n",
		"LOCKSTEP_COLOUR_OF_THE_SKY=blue":             "lockstep: the variable LOCKSTEP_COLOUR_OF_THE_SKY has no effect: no flag has this name\n",
		"LOCKSTEP_ENDPOINTS=10.0.0.1:7400":            "",
		"LOCKSTEP_NAME=n1":                            "", // a flag of another command
		"LOCKSTEP_HANDLE=x":                           "",
		"LOCKSTEP_ETCD=/usr/bin/etcd":                 "",
		"LOCKSTEP_TOKEN=1":                            "",
		"LOCKSTEP_VERSION=1.2":                        "",
		"LOCKSTEP_PORT=tcp://10.96.0.1:7400":          "", // this and the next ones: set by Kubernetes for a Service
		"LOCKSTEP_SERVICE_HOST=10.96.0.1":             "",
		"LOCKSTEP_SERVICE_PORT=7400":                  "",
		"LOCKSTEP_SERVICE_PORT_CLIENTS=7400":          "",
		"LOCKSTEP_PORT_7400_TCP=tcp://10.96.0.1:7400": "",
		"LOCKSTEP_PORT_7400_TCP_ADDR=10.96.0.1":       "",
		"LOCKSTEP_PEERS_PORT_7401_TCP_PROTO=tcp":      "",
		"LOCKSTEP_PEERS_PORT=tcp://10.96.0.1:7401":    "",
		"LOCKSTEP_PEERS_SERVICE_PORT_PEER_PORT=7401":  "",
	} {
		name, value, _ := strings.Cut(entry, "=")
		code, _, errs := invoke(map[string]string{name: value}, "version")
		if code != 0 || errs != want {
			t.Errorf("%s: exit code %d, %q, want %q", entry, code, errs, want)
		}
	}
	code, _, errs := invoke(map[string]string{"LOCKSTEP_PORT": "tcp://10.96.0.1:7400"}, "dev", "--nodes", "0")
	if code != CodeUsage || !strings.Contains(errs, "--nodes") {
		t.Errorf("dev beside a Service named lockstep: exit code %d: %s", code, errs)
	}
	if code, _, errs := invoke(map[string]string{"LOCKSTEP_PORT": "x"}, "dev", "--nodes", "0"); code != CodeUsage || !strings.Contains(errs, "LOCKSTEP_PORT") {
		t.Errorf("LOCKSTEP_PORT is still the twin of --port: exit code %d: %s", code, errs)
	}
}

func TestTheVersionCanBeAskedForAsAFlag(t *testing.T) {
	_, want, _ := invoke(nil, "version")
	for _, flag := range []string{"--version", "-V"} {
		if code, out, errs := invoke(nil, flag); code != 0 || out != want || errs != "" {
			t.Errorf("%s: exit code %d, %q, %q, want %q", flag, code, out, errs, want)
		}
	}
}

func TestAnErrorOfSeveralLinesIsToldInOne(t *testing.T) {
	var errs bytes.Buffer
	(&App{Err: &errs}).complain("x", errors.Join(errors.New("one\n\ttwo"), errors.New("three")))
	if got, want := errs.String(), "lockstep: x: one two; three\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// imageEnvironment returns the variables that the image sets.
func imageEnvironment(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, pair := range regexp.MustCompile(`\b(LOCKSTEP_[A-Z_]+)=(\S+)`).FindAllStringSubmatch(string(text), -1) {
		env[pair[1]] = pair[2]
	}
	if len(env) == 0 {
		t.Fatal("the image sets no variables")
	}
	return env
}

func TestTheImagesEnvironmentIsForTheServerAlone(t *testing.T) {
	env := imageEnvironment(t)
	backup := filepath.Join(t.TempDir(), "b")
	for _, line := range []string{
		"run -n x -- true", "elect x -- true", "elect --observe x", "hold -n x", "acquire -n x", "show x", "ls", "sessions", "history x", "watch", "status", "top -o json",
		"revoke x --reason test", "member list", "member add n9 127.0.0.1:9", "member promote n9", "member remove n9", "member replace n9 127.0.0.1:9", "member lead",
		"snapshot save " + backup,
	} {
		args := strings.Fields(line)
		at := []string{"--connect-timeout", "0.05", "--endpoints", "127.0.0.1:1"}
		if dash := slices.Index(args, "--"); dash >= 0 {
			args = slices.Insert(args, dash, at...)
		} else {
			args = append(args, at...)
		}
		wantCode, _, want := invoke(nil, args...)
		if code, _, errs := invoke(env, args...); code != wantCode || errs != want || code != CodeUnavailable {
			t.Errorf("%s: in the image %d, %q; elsewhere %d, %q", line, code, errs, wantCode, want)
		}
	}
}

// A lock that is asked for where it cannot be is not left out in silence.
func TestAlsoOutsideTheCommandLineIsRefused(t *testing.T) {
	const want = "can only be given on the command line"
	config := file(t, "also: billing/ledger\n")
	code, _, errs := invoke(nil, "run", "--config", config, "billing/nightly", "--", "true")
	if code != CodeUsage || !strings.Contains(errs, want) {
		t.Errorf("in a file: exit code %d, %q", code, errs)
	}
	code, _, errs = invoke(map[string]string{"LOCKSTEP_ALSO": "billing/ledger"}, "run", "billing/nightly", "--", "true")
	if code != CodeUsage || !strings.Contains(errs, want) {
		t.Errorf("in the environment: exit code %d, %q", code, errs)
	}
}
