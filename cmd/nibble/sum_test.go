package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goldenCase is a case of testdata/golden/manifest.json, made by running
// bitsandbytes and torch.
type goldenCase struct {
	Path      string
	Container string
	Tensors   []struct {
		Name   string
		SHA256 map[string]string // by dtype; "restored" is what the tensor restores to
	}
	Raw map[string]struct{ SHA256 string }
}

// Every sum of the golden safetensors checkpoints is that of the reference
// implementation, in every dtype, and so are those of the stored bytes.
func TestGoldenSums(t *testing.T) {
	golden := filepath.Join("..", "..", "testdata", "golden")
	data, err := os.ReadFile(filepath.Join(golden, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Cases []goldenCase }
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, c := range manifest.Cases {
		if !strings.HasPrefix(c.Container, "safetensors") {
			continue
		}
		if strings.Contains(c.Path, "nan_documented") {
			continue // its sums are of canonical NaNs
		}
		path := filepath.Join(golden, filepath.FromSlash(c.Path))
		for flag, key := range map[string]string{"f32": "f32", "f16": "f16", "bf16": "bf16", "stored": "restored"} {
			sums := sumJSON(t, path, "--dtype", flag)
			for _, want := range c.Tensors {
				hash, ok := want.SHA256[key]
				if !ok {
					hash = want.SHA256["restored"] // an int, which keeps its dtype
				}
				if checked++; sums[want.Name] != hash {
					t.Errorf("%s as %s: %s: got %s, want %s", c.Path, flag, want.Name, sums[want.Name], hash)
				}
			}
		}
		sums := sumJSON(t, path, "--raw")
		for name, want := range c.Raw {
			if checked++; sums[name] != want.SHA256 {
				t.Errorf("%s raw: %s: got %s, want %s", c.Path, name, sums[name], want.SHA256)
			}
		}
	}
	if checked < 1000 {
		t.Errorf("only %d sums were compared: is the manifest complete?", checked)
	}
}

// sumJSON runs sum and returns the sums by name.
func sumJSON(t *testing.T, args ...string) map[string]string {
	t.Helper()
	var out, talk bytes.Buffer
	if code := run(context.Background(), append([]string{"sum", "--json"}, args...), &app{stdout: &out, stderr: &talk}); code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, talk.String())
	}
	var doc struct {
		Tensors []struct{ Name, SHA256 string }
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	sums := map[string]string{}
	for _, r := range doc.Tensors {
		sums[r.Name] = r.SHA256
	}
	return sums
}

// The sums of the stored bytes of other people's files are those that another
// reader found, and of torch files those of torch itself.
func TestWildSums(t *testing.T) {
	dir := os.Getenv("NIBBLE_WILD")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "wild")
	}
	for table, flags := range map[string][]string{"expected_safetensors.tsv": {"--raw"}, "expected_torch.tsv": nil} {
		data, err := os.ReadFile(filepath.Join(dir, table))
		if err != nil {
			t.Skip("no folder of wild files; NIBBLE_WILD names it")
		}
		var head []string
		sums := map[string]map[string]string{}
		for line := range strings.Lines(string(data)) {
			cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if head == nil {
				head = cells
				continue
			}
			row := map[string]string{}
			for i, c := range cells[:min(len(cells), len(head))] {
				row[head[i]] = c
			}
			file, name := row["file"], row["tensor"]
			switch name {
			case "ERROR", "NO_TENSORS":
				continue
			case "": // the root itself
				name = "tensor"
			}
			if sums[file] == nil {
				sums[file] = sumJSON(t, append([]string{filepath.Join(dir, file)}, flags...)...)
			}
			if want := row["sha256_raw"] + row["sha256_contiguous_le"]; sums[file][name] != want {
				t.Errorf("%s: %s: got %s, want %s", file, name, sums[file][name], want)
			}
		}
	}
}
