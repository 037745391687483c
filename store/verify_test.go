package store_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nibble/store"
)

// hasFinding reports whether rule is among the findings with a severity.
func hasFinding(found []store.Finding, rule string, s store.Severity) bool {
	return slices.ContainsFunc(found, func(f store.Finding) bool { return f.Rule == rule && f.Severity == s })
}

// suspect are the golden files that decode and still bend a rule.
var suspect = map[string]string{
	"st4/nan_documented.safetensors": "BNB-106", // scales that are infinite and NaN
	"st4/edge_values.safetensors":    "BNB-106", // negative scales, set by hand
}

// Sound files have no findings.
func TestVerifySound(t *testing.T) {
	for _, c := range readManifest().Cases {
		found, err := store.Verify(context.Background(), filepath.Join(goldenDir, c.Path))
		if err != nil {
			t.Errorf("%s: %v", c.Path, err)
		}
		if want := suspect[c.Path]; want != "" {
			if len(found) == 0 || !hasFinding(found, want, store.Suspect) {
				t.Errorf("%s: %v, want %s", c.Path, found, want)
			}
			continue
		}
		for _, f := range found {
			t.Errorf("%s: %+v", c.Path, f)
		}
	}
}

// What Open or a read refuses, Verify finds, with the same rule, and says where.
func TestVerifyHostile(t *testing.T) {
	for _, c := range readManifest().Hostile {
		path := filepath.Join(goldenDir, c.Path)
		_, want := readAll(path)
		found, err := store.Verify(context.Background(), path)
		if err != nil {
			t.Errorf("%s: %v, want findings", c.Path, err)
			continue
		}
		var e *store.Error
		if !errors.As(want, &e) {
			for _, f := range found {
				if f.Severity == store.Broken {
					t.Errorf("%s reads, but: %v", c.Path, f)
				}
			}
			continue
		}
		if !hasFinding(found, string(e.Rule), store.Broken) {
			t.Errorf("%s: findings %v, want %s", c.Path, found, e.Rule)
		}
		for _, f := range found {
			if f.File == "" || f.Message == "" {
				t.Errorf("%s: finding without file or message: %+v", c.Path, f)
			}
		}
	}
	found, err := store.Verify(context.Background(), filepath.Join(goldenDir, "hostile/quant/quant_map_values.safetensors"))
	if err != nil || !hasFinding(found, "BNB-003", store.Suspect) {
		t.Errorf("a quant_map unlike the table: %v, %v", found, err)
	}
}

// The findings on every hostile file and every variant of a wild one, as a
// table that was read line by line against the manifests.
func TestVerifyTable(t *testing.T) {
	want := map[string][]string{}
	for row := range tsv(t, "testdata/verify.tsv") {
		want[row["file"]] = append(want[row["file"]], row["rule"]+" "+row["severity"]+" "+row["tensor"])
	}
	if dir := wildDir(); dir != "" {
		for row := range tsv(t, filepath.Join(dir, "variants", "manifest.tsv")) {
			if f := "wild/variants/" + row["file"]; want[f] == nil && !strings.HasSuffix(f, "/") {
				want[f] = nil // sound
			}
		}
	}
	for file, lines := range want {
		root, path, _ := strings.Cut(file, "/")
		dir := goldenDir
		if root == "wild" {
			if dir = wildDir(); dir == "" {
				continue
			}
		}
		found, err := store.Verify(context.Background(), filepath.Join(dir, path))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.Rule+" "+string(f.Severity)+" "+strconv.Quote(f.Tensor))
		}
		if !slices.Equal(got, lines) {
			t.Errorf("%s: findings\n%s\nwant\n%s", file, strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}

// What cannot be read at all is an error, not a finding.
func TestVerifyUnreadable(t *testing.T) {
	found, err := store.Verify(context.Background(), filepath.Join(t.TempDir(), "none.safetensors"))
	if len(found) != 0 || !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a path that does not exist: %v, %v", found, err)
	}
	if !strings.Contains(err.Error(), "none.safetensors") {
		t.Errorf("the error does not name the path: %v", err)
	}
}
