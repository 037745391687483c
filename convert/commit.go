package convert

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// commit puts the staged files in place, or leaves everything as it was. It is
// short, and not interrupted.
func (s *stage) commit(t *target, files []*output) error {
	if err := syncDir(s.dir); err != nil {
		return err
	}
	if !t.file && !t.exists {
		if err := rename(s.dir, t.out); err != nil {
			return err
		}
		return s.syncParents(t)
	}
	x := &exchange{dir: t.dir(), stage: s.dir}
	if err := x.run(t, files); err != nil {
		if uerr := x.undo(); uerr != nil {
			s.keep = true
			return fmt.Errorf("%w; what was replaced stays in %s: %w", err, s.dir, uerr)
		}
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.notes = append(t.notes, fmt.Sprintf("left behind: %v", err))
	}
	return s.syncParents(t)
}

// syncParents makes the name of the target durable, and those of the parents
// that were made for it. An error here finds the target complete.
func (s *stage) syncParents(t *target) error {
	dirs := []string{filepath.Dir(t.out)}
	for _, d := range s.made {
		dirs = append(dirs, filepath.Dir(d))
	}
	for _, d := range dirs {
		if err := syncDir(d); err != nil {
			t.notes = append(t.notes, fmt.Sprintf("not certain to survive a power failure: %v", err))
		}
	}
	return nil
}

// rename is os.Rename, but for tests of what happens when it fails.
var rename = os.Rename

// exchange replaces files of a folder one by one so that it can be undone. The
// old ones wait in the staging folder.
type exchange struct {
	dir, stage string
	back       []move // what undoes each step
}

type move struct{ from, to string }

// oldDir is where replaced files wait, in the staging folder.
const oldDir = ".old"

// run replaces the files in the order that the package's doc gives.
func (x *exchange) run(t *target, files []*output) error {
	old, err := t.present()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(x.stage, oldDir), 0o777); err != nil {
		return err
	}
	sortRetiring(old)
	if collide(old, files) {
		// Neither checkpoint can be whole: let the old one be seen to be missing.
		for _, name := range old {
			if err := x.retire(name); err != nil {
				return err
			}
		}
		old = nil
	}
	for _, k := range []kind{sidecarFile, shardFile, decidingFile} {
		for _, f := range files {
			if f.kind != k {
				continue
			}
			if err := x.put(f.name, t.force); err != nil {
				return err
			}
			old = slices.DeleteFunc(old, func(name string) bool { return name == f.name })
		}
		if err := syncDir(x.dir); err != nil {
			return err
		}
	}
	for _, name := range old {
		if err := x.retire(name); err != nil {
			return err
		}
	}
	return syncDir(x.dir)
}

// sortRetiring sorts old files so that, as they leave one by one, none that an
// other one hid comes to decide: an index hides model.safetensors, and both hide
// shards.
func sortRetiring(old []string) {
	rank := map[string]int{weightsName: -2, indexName: -1}
	slices.SortStableFunc(old, func(a, b string) int { return rank[a] - rank[b] })
}

// collide reports whether a new shard has the name of an old file.
func collide(old []string, files []*output) bool {
	return slices.ContainsFunc(files, func(f *output) bool {
		return f.kind == shardFile && slices.Contains(old, f.name)
	})
}

// put moves a staged file to its place.
func (x *exchange) put(name string, replace bool) error {
	from, to, old := filepath.Join(x.stage, name), filepath.Join(x.dir, name), filepath.Join(x.stage, oldDir, name)
	info, err := os.Lstat(to)
	undo := move{to, from}
	switch {
	case err != nil: // nothing there
	case !replace:
		return &TargetError{Path: to, Err: fs.ErrExist}
	case info.Mode().IsRegular() && os.Link(to, old) == nil:
		// A second name keeps the old file, so that the rename replaces it
		// without a moment in which there is none.
		undo = move{old, to}
	default:
		if err := x.retire(name); err != nil {
			return err
		}
	}
	if err := rename(from, to); err != nil {
		return err
	}
	x.back = append(x.back, undo)
	return nil
}

// retire moves an old file out of the folder.
func (x *exchange) retire(name string) error {
	from, to := filepath.Join(x.dir, name), filepath.Join(x.stage, oldDir, name)
	if err := rename(from, to); err != nil {
		return err
	}
	x.back = append(x.back, move{to, from})
	return nil
}

// undo takes every step back, the last one first.
func (x *exchange) undo() error {
	for _, m := range slices.Backward(x.back) {
		if err := rename(m.from, m.to); err != nil {
			return err
		}
	}
	return nil
}
