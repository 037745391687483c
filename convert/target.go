package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"nibble/store"
)

const (
	weightsName = "model.safetensors"
	indexName   = "model.safetensors.index.json"
)

// ours are the names that a conversion to a folder gives to weights.
var ours = regexp.MustCompile(`^model(-\d{5,}-of-\d{5,})?\.safetensors$|^model\.safetensors\.index\.json$`)

// target is where the output goes.
type target struct {
	out     string // its path
	file    bool   // out is the file, not a folder of files
	exists  bool   // out is there
	force   bool
	sources []fs.FileInfo // the files that must not be replaced
	notes   []string
}

// newTarget checks that out is, or can become, what its name says.
func newTarget(out string, st *store.Store, force bool) (*target, error) {
	t := &target{out: out, file: strings.HasSuffix(out, ".safetensors"), force: force}
	if out == "" {
		return nil, t.errorf("no name given")
	}
	t.out = filepath.Clean(out) // what ends in a slash is a folder, or a file in the way
	var err error
	if t.sources, err = sources(st); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(t.out); errors.Is(err, fs.ErrNotExist) {
		return t, nil
	} else if err != nil {
		return nil, err
	}
	t.exists = true
	info, err := os.Stat(t.out)
	switch {
	case err != nil:
		return nil, t.errorf("a link to nothing")
	case t.file && info.IsDir():
		return nil, t.errorf("is a folder; want a file or another name")
	case t.file && !info.Mode().IsRegular():
		return nil, t.errorf("is not a regular file")
	case !t.file && !info.IsDir():
		return nil, t.errorf("is a file, and a name that does not end in .safetensors is that of a folder")
	case t.isSource(info):
		return nil, t.errorf("is a file of the source")
	}
	if info.IsDir() {
		if what := wideFolder(info); what != "" {
			return nil, t.errorf("is %s; want a folder for the model alone", what)
		}
	}
	switch {
	case force:
		return t, nil
	case info.IsDir():
		return nil, t.errorf("%w", errFolderExists)
	}
	return nil, t.errorf("%w", fs.ErrExist)
}

// errFolderExists is fs.ErrExist, whose text speaks of a file.
var errFolderExists error = folderExists{}

type folderExists struct{}

func (folderExists) Error() string { return "folder already exists" }

func (folderExists) Is(target error) bool { return target == fs.ErrExist }

// wideFolder says what a folder is that no model belongs in, whatever is
// forced: a slip such as .. for a name leads there.
func wideFolder(info fs.FileInfo) string {
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // as .. goes
	}
	if err != nil {
		return "" // removed, or below what may be read: nothing to compare
	}
	for depth := 0; ; depth++ {
		parent := filepath.Dir(dir)
		at, err := os.Stat(dir)
		switch {
		case err != nil || !os.SameFile(at, info):
		case parent == dir:
			return "the root of the file system"
		case depth > 0:
			return "above the working directory"
		}
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

func (t *target) errorf(format string, args ...any) error {
	return &TargetError{Path: t.out, Err: fmt.Errorf(format, args...)}
}

// sources describes the files that the checkpoint was opened from.
func sources(st *store.Store) ([]fs.FileInfo, error) {
	if st.Dir() == "" {
		return nil, nil
	}
	var paths []string
	for _, name := range st.Files() {
		paths = append(paths, filepath.Join(st.Dir(), filepath.FromSlash(name)))
	}
	if st.Index() != "" {
		paths = append(paths, st.Index())
	}
	var infos []fs.FileInfo
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// isSource reports whether info is that of a source file, whatever links lead
// to it.
func (t *target) isSource(info fs.FileInfo) bool {
	for _, s := range t.sources {
		if os.SameFile(s, info) {
			return true
		}
	}
	return false
}

// dir is the folder that will hold the files.
func (t *target) dir() string {
	if t.file {
		return filepath.Dir(t.out)
	}
	return t.out
}

// path is that of an output.
func (t *target) path(name string) string { return filepath.Join(t.dir(), name) }

// weightsName is the name of weights file i of n.
func (t *target) weightsName(i, n int) string {
	switch {
	case t.file:
		return filepath.Base(t.out)
	case n == 1:
		return weightsName
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

// check makes sure that the files can take the place of what is there, and
// that none of it is of the source.
func (t *target) check(files []*output) error {
	if !t.exists || t.file {
		return nil
	}
	for _, f := range files {
		if f.source != nil {
			t.sources = append(t.sources, f.source)
		}
	}
	names, err := t.present()
	if err != nil {
		return err
	}
	for _, f := range files {
		names = append(names, f.name)
	}
	for _, name := range names {
		info, err := os.Stat(t.path(name))
		if err != nil {
			continue // nothing there, or a link to nothing: a rename replaces it
		}
		switch {
		case t.isSource(info):
			return t.errorf("%s in it is a file of the source", name)
		case info.IsDir():
			return t.errorf("%s in it is a folder", name)
		}
	}
	return nil
}

// present lists the weights and the index that are in the folder already.
func (t *target) present() ([]string, error) {
	if t.file || !t.exists {
		return nil, nil
	}
	entries, err := os.ReadDir(t.out)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if ours.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// write writes the files, all or none.
func (t *target) write(ctx context.Context, files []*output) (err error) {
	s, err := newStage(t)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.discard()
		}
	}()
	for _, f := range files {
		if err := s.create(ctx, f); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.commit(t, files)
}
