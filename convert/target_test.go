package convert_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nibble/convert"
	"nibble/store"
	"nibble/tensor"
)

const single = goldenDir + "/model_single"

// refuse runs a conversion that must be refused with a *TargetError that says
// want, and checks that nothing below dir changed.
func refuse(t *testing.T, dir, source, out, want string, o convert.Options) error {
	t.Helper()
	before := tree(t, dir)
	_, err := convert.Run(t.Context(), open(t, source, store.Config{}), out, o)
	var target *convert.TargetError
	if !errors.As(err, &target) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a *TargetError with %q", err, want)
	}
	if after := tree(t, dir); !maps.Equal(before, after) {
		t.Errorf("changed: %v", slices.Sorted(maps.Keys(after)))
	}
	return err
}

// A target that exists is replaced when asked to, else refused.
func TestExisting(t *testing.T) {
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "a.safetensors"), filepath.Join(dir, "b")
	for _, out := range []string{file, folder} {
		run(t, open(t, single, store.Config{}), out, convert.Options{DType: tensor.F16})
		want := "file already exists"
		if out == folder {
			want = "folder already exists"
		}
		if err := refuse(t, dir, single, out, want, convert.Options{}); !errors.Is(err, fs.ErrExist) {
			t.Errorf("error %v, want fs.ErrExist", err)
		}
		st := open(t, single, store.Config{})
		run(t, st, out, convert.Options{Force: true})
		sameTensors(t, st, out, tensor.Stored)
	}
	if names := slices.Sorted(maps.Keys(tree(t, dir))); !slices.Equal(names, []string{".", "a.safetensors", "b", "b/config.json", "b/model.safetensors"}) {
		t.Errorf("the folder holds %q", names)
	}
}

// What stands in the way is left there, even with Force.
func TestInTheWay(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, path("file"), "text")
	writeFile(t, path("folder.safetensors/x"), "text")
	writeFile(t, path("shards/model.safetensors/x"), "text")
	if err := os.Symlink("nowhere", path("link")); err != nil {
		t.Fatal(err)
	}
	force := convert.Options{Force: true}
	refuse(t, dir, single, "", "no name", force)
	refuse(t, dir, single, path("file"), "is a file", force)
	refuse(t, dir, single, path("folder.safetensors"), "is a folder", force)
	refuse(t, dir, single, path("shards"), "model.safetensors in it is a folder", force)
	refuse(t, dir, single, path("link"), "link to nothing", force)
	refuse(t, dir, single, path("new.safetensors"), "files of at most", convert.Options{MaxShardSize: 1000})
	if _, err := convert.Run(t.Context(), open(t, single, store.Config{}), path("file/below"), convert.Options{}); err == nil {
		t.Error("a file as a parent: no error")
	}
}

// The root and what is above the working directory are no folder for a model,
// by whatever name and even with Force. The working directory itself is one.
func TestWideFolders(t *testing.T) {
	source, err := filepath.Abs(single)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	here := filepath.Join(dir, "a", "b", "c")
	if err := os.MkdirAll(here, 0o777); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"root": filepath.VolumeName(dir) + string(filepath.Separator), "up": filepath.Join(dir, "a")} {
		if err := os.Symlink(to, filepath.Join(here, from)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(here)
	for _, out := range []string{"..", "../..", "../", dir, "up"} {
		for _, force := range []bool{false, true} {
			err := refuse(t, dir, source, out, "above the working directory", convert.Options{Force: force})
			if errors.Is(err, fs.ErrExist) {
				t.Errorf("error %v says that Force helps", err)
			}
		}
	}
	// Not forced: a failure here must not write to the root.
	for _, out := range []string{filepath.VolumeName(dir) + string(filepath.Separator), "root"} {
		if err := refuse(t, dir, source, out, "root of the file system", convert.Options{}); errors.Is(err, fs.ErrExist) {
			t.Errorf("error %v says that Force helps", err)
		}
	}
	st := open(t, source, store.Config{})
	run(t, st, ".", convert.Options{Force: true})
	run(t, st, "../beside", convert.Options{})
	run(t, st, "../x.safetensors", convert.Options{})
	// Behind a link, .. is where the link leads.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(here, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(link)
	refuse(t, dir, source, "..", "above the working directory", convert.Options{Force: true})
}

// A conversion never replaces what it reads, by whatever name.
func TestOwnSource(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	copyDir(t, single, path("m"))
	copyDir(t, goldenDir+"/model_sharded", path("s"))
	for _, err := range []error{
		os.Symlink("m/model.safetensors", path("link.safetensors")),
		os.Link(path("m/model.safetensors"), path("hard.safetensors")),
		os.Symlink("m", path("mlink")),
		os.Symlink("m/model.safetensors", path("blob")),
		os.Mkdir(path("holds"), 0o777),
		os.Symlink("../m/config.json", path("holds/config.json")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	force := convert.Options{Force: true}
	refuse(t, dir, path("m"), path("m/model.safetensors"), "is a file of the source", force)
	refuse(t, dir, path("m"), path("m/model.safetensors"), "is a file of the source", convert.Options{})
	refuse(t, dir, path("m/model.safetensors"), path("link.safetensors"), "is a file of the source", force)
	refuse(t, dir, path("link.safetensors"), path("m/model.safetensors"), "is a file of the source", force)
	refuse(t, dir, path("blob"), path("hard.safetensors"), "is a file of the source", force)
	refuse(t, dir, path("m"), path("m"), "is a file of the source", force)
	refuse(t, dir, path("m"), path("mlink"), "is a file of the source", force)
	refuse(t, dir, path("m"), path("holds"), "config.json in it is a file of the source", force)
	// Not even what it would only remove: the index and the shards of the source.
	refuse(t, dir, path("s"), path("s"), "is a file of the source", force)
	refuse(t, dir, path("s/model.safetensors.index.json"), path("s"), "is a file of the source", convert.Options{Force: true, MaxShardSize: 1000})
}

// Beside a source whose names do not collide there is room.
func TestBesideTheSource(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "pytorch_model.bin")
	data, err := os.ReadFile(goldenDir + "/pt/views.pt")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, in, string(data))
	st := open(t, in, store.Config{})
	run(t, st, dir, convert.Options{Force: true})
	sameTensors(t, st, filepath.Join(dir, "model.safetensors"), tensor.Stored)
}

// All broken tensors are named, and all that safetensors cannot hold.
func TestRefusesBroken(t *testing.T) {
	for _, source := range []string{"hostile/index/wrong_shard/model.safetensors.index.json", "hostile/quant/absmax_missing.safetensors"} {
		dir := t.TempDir()
		st := open(t, filepath.Join(goldenDir, source), store.Config{})
		_, err := convert.Run(t.Context(), st, filepath.Join(dir, "a/b"), convert.Options{})
		var refused *convert.RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("error %v, want a *RefusedError", err)
		}
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("error %v, want ErrCorrupt", err)
		}
		checkRefused(t, st, err, tensor.Stored)
		if left := tree(t, dir); len(left) != 1 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// The globs of the store leave tensors out, broken ones too.
func TestGlobs(t *testing.T) {
	st := open(t, single, store.Config{}, store.WithInclude("*layers.1.*"), store.WithExclude("*mlp*"))
	out := filepath.Join(t.TempDir(), "x.safetensors")
	r := run(t, st, out, convert.Options{})
	if r.Tensors != st.Len() || r.Tensors == 0 || r.Tensors == 39 {
		t.Errorf("%d tensors written, the globs leave %d", r.Tensors, st.Len())
	}
	sameTensors(t, st, out, tensor.Stored)
}

// Options that mean nothing are refused.
func TestOptions(t *testing.T) {
	st := open(t, single, store.Config{})
	for _, o := range []convert.Options{{DType: tensor.I8}, {DType: tensor.F64}, {MaxShardSize: -1}} {
		dir := t.TempDir()
		if _, err := convert.Run(context.Background(), st, filepath.Join(dir, "out"), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// A link in the way is replaced, and not what it leads to.
func TestReplacesLinks(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	run(t, open(t, single, store.Config{}), path("elsewhere"), convert.Options{DType: tensor.F16})
	before := tree(t, path("elsewhere"))
	if err := os.Mkdir(path("out"), 0o777); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		"out/model.safetensors": "../elsewhere/model.safetensors", "out/config.json": "../elsewhere/config.json",
		"out/model.safetensors.index.json": "nothing", "file.safetensors": "elsewhere/model.safetensors",
	} {
		if err := os.Symlink(to, path(from)); err != nil {
			t.Fatal(err)
		}
	}
	st := open(t, single, store.Config{})
	for _, out := range []string{"out", "file.safetensors"} {
		run(t, st, path(out), convert.Options{Force: true})
		sameTensors(t, st, path(out), tensor.Stored)
	}
	for name, content := range tree(t, dir) {
		if strings.HasPrefix(content, "link") {
			t.Errorf("%s is still a %s", name, content)
		}
	}
	if after := tree(t, path("elsewhere")); !maps.Equal(before, after) {
		t.Error("what the links led to has changed")
	}
}

// A source that is no file converts too, and has no neighbours.
func TestReaderAt(t *testing.T) {
	data, err := os.ReadFile(single + "/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.OpenReaderAt(t.Context(), "memory", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	out := filepath.Join(t.TempDir(), "out")
	if r := run(t, st, out, convert.Options{}); len(r.Files) != 1 {
		t.Errorf("wrote %q, want one file", r.Files)
	}
	sameTensors(t, st, out, tensor.Stored)
}
