package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"nibble/internal/testkit"
	"nibble/store/safetensors"
	"nibble/tensor"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"nibble": main})
}

// Each script in testdata/script is one session in an empty folder, with the
// golden vectors in $GOLDEN. Beside testscript's own commands there are
//
//	json PATH [VALUE]     the last output is JSON and has VALUE, or nothing, at PATH;
//	                      a path is keys and indices joined by dots, # is a length
//	code N nibble ARG…    runs nibble and expects exit code N
//	mkst FILE NAME…       writes a safetensors file of float32 scalars, all 1; names may be Go-quoted;
//	                      NAME=VALUE is a line of metadata
//	patch FILE OFF HEX    overwrites bytes
func TestScripts(t *testing.T) {
	if testkit.Emulated() {
		t.Skip("an emulator runs the test, and nothing that the test starts")
	}
	golden, err := filepath.Abs(filepath.Join("..", "..", "testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("GOLDEN", golden)
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "xdg"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"json": scriptJSON, "code": scriptCode, "mkst": scriptSafetensors, "patch": scriptPatch,
		},
		RequireExplicitExec: true,
	})
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: json PATH [VALUE]")
	}
	want := ""
	if len(args) == 2 {
		want = args[1]
	}
	if got := lookUp(ts, ts.ReadFile("stdout"), args[0]); got != want {
		ts.Fatalf("%s is %s, want %s", args[0], got, want)
	}
}

// lookUp returns what a JSON document has at path: a string as it is, anything
// else as JSON, nothing as "".
func lookUp(ts *testscript.TestScript, doc, path string) string {
	var at any
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	ts.Check(dec.Decode(&at))
	if dec.More() {
		ts.Fatalf("more than one JSON document")
	}
	for _, key := range strings.Split(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[key]
		case []any:
			if key == "#" {
				return strconv.Itoa(len(v))
			}
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(v) {
				return ""
			}
			at = v[i]
		default:
			return ""
		}
	}
	switch v := at.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, err := json.Marshal(at)
	ts.Check(err)
	return string(text)
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARG…")
	}
	want := args[0]
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = strconv.Itoa(exit.ExitCode())
	}
	if got != want {
		ts.Fatalf("exit code %s, want %s", got, want)
	}
}

func scriptSafetensors(ts *testscript.TestScript, neg bool, args []string) {
	var tensors []safetensors.Tensor
	metadata := map[string]string{}
	for _, name := range args[1:] {
		if key, value, ok := strings.Cut(name, "="); ok {
			metadata[key] = value
			continue
		}
		if strings.HasPrefix(name, `"`) {
			var err error
			name, err = strconv.Unquote(name)
			ts.Check(err)
		}
		tensors = append(tensors, safetensors.Tensor{Name: name, DType: tensor.F32})
	}
	layout, err := safetensors.Encode(tensors, metadata)
	ts.Check(err)
	one := []byte{0, 0, 0x80, 0x3f}
	data := append(layout.Header, bytes.Repeat(one, len(tensors))...)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o666))
}

func scriptPatch(ts *testscript.TestScript, neg bool, args []string) {
	off, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	var patch []byte
	_, err = fmt.Sscanf(args[2], "%x", &patch)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteAt(patch, off)
	ts.Check(err)
	ts.Check(f.Close())
}
