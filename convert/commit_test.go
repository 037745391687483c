package convert_test

import (
	"errors"
	"fmt"
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

var errRename = errors.New("rename failed")

// layouts are what a folder may hold before: f16, in one file, or in shards
// with the number of the new ones or another, some with leftovers of yet
// another.
var layouts = map[string]func(t *testing.T, st *store.Store, out string){
	"none": func(*testing.T, *store.Store, string) {},
	"one":  func(t *testing.T, st *store.Store, out string) { lay(t, st, out, 1<<30) },
	"same": func(t *testing.T, st *store.Store, out string) { lay(t, st, out, sameShards/2) },
	"more": func(t *testing.T, st *store.Store, out string) { lay(t, st, out, sameShards/4) },
	"same and leftovers": func(t *testing.T, st *store.Store, out string) {
		lay(t, st, out, sameShards/2)
		// Hidden by the index: what decides if that is gone.
		run(t, st, filepath.Join(out, "model.safetensors"), convert.Options{DType: tensor.BF16})
	},
}

// sameShards is a shard size in float32, half of which gives as many shards in
// float16.
const sameShards = 250_000

func lay(t *testing.T, st *store.Store, out string, size int64) {
	run(t, st, out, convert.Options{DType: tensor.F16, MaxShardSize: size, Force: true})
}

// forEachExchange calls f for every layout before and after.
func forEachExchange(t *testing.T, f func(t *testing.T, st *store.Store, prepare func() string, o convert.Options)) {
	st := open(t, single, store.Config{})
	for name, layout := range layouts {
		if testing.Short() && name == "more" {
			continue
		}
		for what, size := range map[string]int64{"one": 1 << 30, "shards": sameShards} {
			t.Run(name+" to "+what, func(t *testing.T) {
				prepare := func() string {
					out := filepath.Join(t.TempDir(), "out")
					layout(t, st, out)
					return out
				}
				f(t, st, prepare, convert.Options{DType: tensor.F32, MaxShardSize: size, Force: true})
			})
		}
	}
}

// One checkpoint takes the place of another: nothing of the old one stays.
func TestReplace(t *testing.T) {
	forEachExchange(t, func(t *testing.T, st *store.Store, prepare func() string, o convert.Options) {
		out := prepare()
		r := run(t, st, out, o)
		sameTensors(t, st, out, tensor.F32)
		var want []string
		for _, f := range r.Files {
			want = append(want, filepath.Base(f))
		}
		slices.Sort(want)
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("the folder holds %q, want %q", got, want)
		}
	})
}

// When the n-th rename fails, those before it are undone.
func TestRenameFails(t *testing.T) {
	forEachExchange(t, func(t *testing.T, st *store.Store, prepare func() string, o convert.Options) {
		for n := 1; ; n++ {
			out := prepare()
			before := tree(t, filepath.Dir(out))
			calls := 0
			restore := convert.SetRename(func(from, to string) error {
				if calls++; calls == n {
					return errRename
				}
				return os.Rename(from, to)
			})
			_, err := convert.Run(t.Context(), st, out, o)
			restore()
			if err == nil {
				return
			}
			if !errors.Is(err, errRename) || calls < n {
				t.Fatalf("rename %d fails: error %v", n, err)
			}
			if after := tree(t, filepath.Dir(out)); !maps.Equal(before, after) {
				t.Fatalf("rename %d fails: the folder holds %q, before %q", n, slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
			}
		}
	})
}

// A process that dies between two renames leaves the old checkpoint or the new
// one, or, where new shards have the names of old ones, one that a reader finds
// incomplete: never a mixture. What is missing is in the staging folder.
func TestDiesBetweenRenames(t *testing.T) {
	forEachExchange(t, func(t *testing.T, st *store.Store, prepare func() string, o convert.Options) {
		was := "f16"
		gap := strings.Contains(t.Name(), "same") && strings.HasSuffix(t.Name(), "shards")
		if strings.Contains(t.Name(), "none") {
			was, gap = "", true
		}
		for n := 0; ; n++ {
			out := prepare()
			calls := 0
			restore := convert.SetRename(func(from, to string) error {
				if calls++; calls > n {
					return errRename // and nothing can be undone, either
				}
				return os.Rename(from, to)
			})
			_, err := convert.Run(t.Context(), st, out, o)
			restore()
			if err == nil {
				return
			}
			now := state(t, st, out)
			if !slices.Contains(follows[was], now) || now == "" && !gap {
				t.Errorf("dead after %d renames: %s, before that %s", n, now, was)
			}
			was = now
			staged, _ := filepath.Glob(filepath.Join(out, ".*.tmp", "*"))
			if n > 0 && (len(staged) == 0 || !strings.Contains(err.Error(), filepath.Dir(staged[0]))) {
				t.Errorf("dead after %d renames: staged %q, error %v", n, staged, err)
			}
		}
	})
}

// follows are the states that may come after one.
var follows = map[string][]string{"f16": {"f16", "", "f32"}, "": {"", "f32"}, "f32": {"f32"}}

// state is the dtype of the checkpoint in out, whose tensors must all be of it
// and all be there; "" when a reader refuses it as incomplete.
func state(t *testing.T, st *store.Store, out string) string {
	t.Helper()
	got, err := store.Open(t.Context(), out)
	if errors.Is(err, store.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	dtypes := map[string]int{}
	for h := range st.Tensors() {
		g, err := got.Tensor(h.Name())
		if err != nil {
			t.Fatal(err)
		}
		info, err := g.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		dtypes[info.DType.String()]++
	}
	for dt := range dtypes {
		if len(dtypes) == 1 {
			return dt
		}
	}
	return fmt.Sprintf("a mixture: %v", dtypes)
}

// A target that appears while the conversion runs is not replaced unasked.
func TestAppearsMeanwhile(t *testing.T) {
	for _, name := range []string{"out.safetensors", "out"} {
		dir := t.TempDir()
		out := filepath.Join(dir, name)
		theirs := out
		if name == "out" {
			theirs = filepath.Join(out, "model.safetensors")
		}
		st := open(t, single, store.Config{})
		_, err := convert.Run(t.Context(), st, out, convert.Options{
			Progress: func(done, total int64) {
				if done == total {
					writeFile(t, theirs, "theirs")
				}
			},
		})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if data, err := os.ReadFile(theirs); err != nil || string(data) != "theirs" {
			t.Errorf("%s: replaced: %v", name, err)
		}
		if names := tree(t, dir); len(names) > 3 {
			t.Errorf("%s: left %q", name, slices.Sorted(maps.Keys(names)))
		}
	}
}
