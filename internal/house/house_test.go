package house

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

type rule struct {
	name  string
	check func(fs.FS) ([]string, error)
}

func rules() []rule {
	return []rule{
		{"imports point down", Layers},
		{"the tables of the rules name packages that exist", StaleRows},
		{"the root module requires nothing", EmptyRoot},
		{"no fixture and no example is linked into the program", Binary},
		{"the core is pure", Purity},
		{"every package has a doc comment", PackageDocs},
		{"every exported name has a doc comment", NameDocs},
		{"functions and files are of a size to read", Sizes},
		{"comments are narrow enough for a diff", CommentWidth},
		{"no condition depends on the text of an error", ErrorTexts},
		{"the documentation refers to what there is", Pages},
		{"what is built has a version", Pins},
		{"help texts and documentation are in plain English", Wording},
	}
}

func TestTheRepositoryKeepsItsRules(t *testing.T) {
	repo := newSourceTree(os.DirFS("../.."))
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			found, err := r.check(repo)
			if err != nil {
				t.Fatal(err)
			}
			for _, violation := range found {
				t.Error(violation)
			}
		})
	}
}

func TestTheRulesReadTheWholeRepository(t *testing.T) {
	files, err := parse(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		seen[f.dir] = true
	}
	for _, dir := range append([]string{".", "api/lockstep/v1", "client", "cmd/lockstep"}, pure...) {
		if !seen[dir] {
			t.Errorf("no file of %s was read", dir)
		}
	}
}

func TestAPlantedViolationIsFound(t *testing.T) {
	const doc = "// Package p is planted.\npackage p\n\n"
	long := doc + "func f() {\n" + strings.Repeat("\tg()\n", maxFunctionLines) + "}\n"
	tests := []struct {
		name  string
		rule  func(fs.FS) ([]string, error)
		file  string
		text  string
		finds string
	}{
		{"an import that points up", Layers, "server/machine/x.go", doc + `import _ "` + modulePath + `/server/node"`, "not below it"},
		{"an import of a sibling", Layers, "server/expiry/x.go", doc + `import _ "` + modulePath + `/server/machine"`, "not below it"},
		{"a forbidden import", Layers, "server/replica/x.go", doc + `import _ "` + modulePath + `/server/storage"`, "must not import"},
		{"the contract imported by the lock table", Layers, "server/machine/x.go", doc + `import _ "` + modulePath + `"`, "must not import ."},
		{"the lock table imported by its vocabulary", Layers, "server/command/x.go", doc + `import _ "` + modulePath + `/server/machine"`, "not below it"},
		{"Raft in what a leader does for clients", Layers, "server/lead/x.go", doc + `import _ "go.etcd.io/raft/v3"`, "must not import go.etcd.io/raft/v3"},
		{"a package outside the table", Layers, "server/new/x.go", doc, "no place in the table"},
		{"an import from outside the table", Layers, "server/node/x.go", doc + `import _ "` + modulePath + `/util"`, "no place in the table"},
		{"a fixture in the program", Binary, "cmd/lockstep/x.go", doc + `import _ "` + modulePath + `/locktest/bed"`, "locktest/bed: imported by cmd/lockstep"},
		{"a requirement of the root", EmptyRoot, "go.mod", "module m\n\ngo 1.26\n\nrequire a v1\n", "require a v1"},
		{"a replacement in the root", EmptyRoot, "go.mod", "module m\nreplace a => b\n", "replace a"},
		{"a goroutine", Purity, "server/machine/x.go", doc + "func f() { go f() }", "starts a goroutine"},
		{"a select", Purity, "server/replica/x.go", doc + "func f() { select {} }", "selects"},
		{"a channel", Purity, "server/expiry/x.go", doc + "var c chan int", "uses a channel"},
		{"a receive", Purity, "server/expiry/x.go", doc + "func f() { <-c }", "receives"},
		{"a clock", Purity, "client/session/x.go", doc + `import "time"` + "\nvar t = time.Now()", "time.Now"},
		{"chance", Purity, "server/machine/x.go", doc + `import "math/rand/v2"`, "imports math/rand/v2"},
		{"a loop over a map", Purity, "server/machine/x.go", doc + "type m struct { names map[string]int }\nfunc (m m) f() { for range m.names {} }", "loops over a map"},
		{"a loop over a map that was made", Purity, "server/machine/x.go", doc + "func f() { seen := make(map[int]bool); for range seen {} }", "loops over a map"},
		{"a package without a doc comment", PackageDocs, "a/x.go", "package a\n", "no doc comment"},
		{"a function without a doc comment", NameDocs, "a/x.go", doc + "func F() {}", "F has no doc"},
		{"a method without a doc comment", NameDocs, "a/x.go", doc + "// T is.\ntype T int\n\nfunc (*T) F() {}", "F has no doc"},
		{"a type without a doc comment", NameDocs, "a/x.go", doc + "type T int", "T has no doc"},
		{"a constant without a doc comment", NameDocs, "a/x.go", doc + "const C = 1", "C has no doc"},
		{"a long function", Sizes, "a/x.go", long, "the limit is 70"},
		{"a long file", Sizes, "a/x.go", doc + strings.Repeat("// line\n", maxFileLines), "the limit is 800"},
		{"a test that is not there", Pages, "docs/x.md", "Proof: `TestNothing`.", "no TestNothing"},
		{"a link to nowhere", Pages, "docs/x.md", "See [y](y.md#part).", "no docs/y.md"},
		{"a script that is not there", Pages, "README.md", "Run accept/x.sh.", "no accept/x.sh"},
		{"a tool without a version", Pins, "Makefile", "lint:\n\tgo install example.org/lint@latest\n", "Makefile:2: \"@latest\""},
		{"a script that installs the newest", Pins, "scripts/x", "go install example.org/x@latest", "scripts/x:1: \"@latest\""},
		{"a foreign phrase in a help text", Wording, "cmd/internal/cli/x.go", doc + `const help = "Whoever has the secret may do everything."`, `x.go:4: "Whoever"`},
		{"a foreign phrase over two lines of a help text", Wording, "cmd/internal/cli/x.go", doc + "const help = `show so\nmany locks`", `x.go:4: "so\nmany"`},
		{"a foreign phrase in a page", Wording, "docs/x.md", "One.\n\nThe holder is told.", `docs/x.md:3: "is told"`},
		{"a foreign phrase in the README", Wording, "README.md", "It is kept for ever.", `README.md:1: "for ever"`},
		{"a wide comment", CommentWidth, "a/x.go", doc + "\t// " + strings.Repeat("wide ", 20), "a/x.go:4: comment of 104 columns"},
		{"a text of an error in a condition", ErrorTexts, "a/x.go", doc + `func f() { if contains(err.Error(), "gone") {} }`, "a/x.go:4: a condition"},
		{"a text of an error in a case", ErrorTexts, "a/x.go", doc + "func f() { switch { case err.Error() == t: } }", "a/x.go:4: a condition"},
		{"an init function", Sizes, "a/x.go", doc + "func init() {}", "init function"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			found, err := tt.rule(fstest.MapFS{tt.file: &fstest.MapFile{Data: []byte(tt.text)}})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || !strings.Contains(found[0], tt.finds) {
				t.Errorf("found %q, want one violation with %q", found, tt.finds)
			}
		})
	}
}

func TestARowWithoutItsPackageIsFound(t *testing.T) {
	found, err := StaleRows(fstest.MapFS{"server/machine/x.go": &fstest.MapFile{Data: []byte("package machine\n")}})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(found, "\n")
	if !strings.Contains(all, "server/node: is in a table") || strings.Contains(all, "server/machine:") {
		t.Errorf("found %q, want all but server/machine", found)
	}
}

func TestTheOutputOfAnExampleMayBeWide(t *testing.T) {
	text := "package p\n\nfunc Example() {\n\t// Output:\n\t// " + strings.Repeat("wide ", 30) + "\n}\n"
	found, err := CommentWidth(fstest.MapFS{"a/x_test.go": &fstest.MapFile{Data: []byte(text)}})
	if err != nil || len(found) > 0 {
		t.Errorf("found %q, %v, want nothing", found, err)
	}
}

func TestPlainWordsPass(t *testing.T) {
	text := "package cli\n\nconst help = `For every lock, as many permits as it was told.`\n\n// Whoever reads this may.\nvar x int\n"
	found, err := Wording(fstest.MapFS{
		"cmd/internal/cli/x.go":      &fstest.MapFile{Data: []byte(text)},
		"cmd/internal/cli/x_test.go": &fstest.MapFile{Data: []byte("package cli\n\nconst old = `for ever`\n")},
		"docs/adr/0001-x.md":         &fstest.MapFile{Data: []byte("for ever")},
	})
	if err != nil || len(found) > 0 {
		t.Errorf("found %q, %v, want nothing", found, err)
	}
}

func TestALoopOverAMapWithAWordOnItsOrderPasses(t *testing.T) {
	text := "package p\n\nfunc f(m map[string]int) {\n\t// A sum is the same in any order.\n\tfor range m {\n\t}\n}\n"
	found, err := Purity(fstest.MapFS{"server/machine/x.go": &fstest.MapFile{Data: []byte(text)}})
	if err != nil || len(found) > 0 {
		t.Errorf("found %q, %v, want nothing", found, err)
	}
}
