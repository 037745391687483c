package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "nibble"

// Every import of every file, whatever its build tags, keeps to the map.
func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, file, d.Name())
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		name, ok := roomOf(path.Dir(rel))
		if !ok {
			t.Errorf("%s: no room on the map holds this package", rel)
			return nil
		}
		seen[name] = true
		return checkFile(t, root, rel, name)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tensor", "mmap", "cache", "quant", "store", "cmd/nibble"} {
		if !seen[name] {
			t.Errorf("no file of room %s was looked at: the test does not see the tree", name)
		}
	}
}

// enter skips what holds no packages of this module: hidden folders, test data,
// and modules of their own.
func enter(root, dir, name string) error {
	if dir == root {
		return nil
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// roomOf finds the room of a package: the longest path on the map that it
// starts with.
func roomOf(pkg string) (string, bool) {
	for p := pkg; p != "."; p = path.Dir(p) {
		if _, ok := rooms[p]; ok {
			return p, true
		}
	}
	return "", false
}

func checkFile(t *testing.T, root, rel, from string) error {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, rel), nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(rel, "_test.go")
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		if why := refuse(from, imported, test); why != "" {
			t.Errorf("%s: imports %s: %s", rel, imported, why)
		}
	}
	return nil
}

// refuse says why room from may not import a package; "" when it may.
func refuse(from, imported string, test bool) string {
	own, isOurs := strings.CutPrefix(imported, module+"/")
	switch {
	case isOurs:
		to, ok := roomOf(own)
		if !ok {
			return "no room on the map holds it"
		}
		return refuseRoom(from, to, test)
	case imported == "C":
		return "nibble is free of cgo"
	case !strings.Contains(strings.Split(imported, "/")[0], "."):
		return "" // the standard library
	case within(imported, rooms[from].modules), test && within(imported, testModules):
		return ""
	}
	return "room " + from + " may not use this module"
}

func refuseRoom(from, to string, test bool) string {
	f := rooms[from]
	switch {
	case from == to:
		return ""
	case slices.Contains(helpers, to):
		if !test && from != "bench" {
			return "room " + to + " is for tests and benchmarks"
		}
		return ""
	case rooms[to].level >= f.level:
		return "the import runs upward, from level " + strconv.Itoa(f.level) + " to " + strconv.Itoa(rooms[to].level)
	case f.imports == nil || test || within(to, f.imports):
		return ""
	}
	return "room " + from + " may only import " + strings.Join(f.imports, ", ")
}

func within(p string, roots []string) bool {
	for _, r := range roots {
		if p == r || strings.HasPrefix(p, r+"/") {
			return true
		}
	}
	return false
}

// The test must refuse what the map forbids: each rule once.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		from, imported string
		test, ok       bool
	}{
		{"store", "nibble/mmap", false, true},
		{"mmap", "nibble/store", false, false},
		{"tensor", "nibble/quant", true, false},
		{"cache", "nibble/tensor", false, false},
		{"quant", "nibble/mmap", false, false},
		{"store/safetensors", "nibble/cache", false, false},
		{"store/pytorch", "nibble/store/safetensors", false, false},
		{"store", "nibble/store/pytorch", false, true},
		{"store", "github.com/spf13/cobra", false, false},
		{"cmd/nibble", "github.com/spf13/cobra", false, true},
		{"cmd/nibble", "nibble/cmd/nibble/internal/table", false, true},
		{"quant", "nibble/internal/testkit", false, false},
		{"quant", "nibble/internal/testkit", true, true},
		{"store", "nibble/bench/synth", true, true},
		{"store", "nibble/bench/synth", false, false},
		{"quant", "pgregory.net/rapid", true, true},
		{"quant", "pgregory.net/rapid", false, false},
		{"tensor", "C", false, false},
		{"tensor", "encoding/json/jsontext", false, true},
		{"store", "nibble/attic", false, false},
	} {
		if why := refuse(c.from, c.imported, c.test); (why == "") != c.ok {
			t.Errorf("%s importing %s (test %v): %q", c.from, c.imported, c.test, why)
		}
	}
}
