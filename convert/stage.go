package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// stage is the folder that files are written to before they are put in place.
// It is on the file system of the target.
type stage struct {
	dir  string
	made []string // parents that were made for it, outermost first
	keep bool     // it holds files of the target that are nowhere else
}

// newStage makes the staging folder: in the folder of the target if that
// exists, or else where it will be.
func newStage(t *target) (*stage, error) {
	parent := filepath.Dir(t.out)
	if !t.file && t.exists {
		parent = t.out
	}
	s := new(stage)
	if err := s.makeParents(parent); err != nil {
		s.removeParents()
		return nil, err
	}
	prefix := fmt.Sprintf(".%.32s.", filepath.Base(t.out))
	t.noteLeftovers(parent, prefix)
	for {
		s.dir = filepath.Join(parent, fmt.Sprintf("%s%08x%s", prefix, rand.Uint32(), stageSuffix))
		err := os.Mkdir(s.dir, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			s.removeParents()
			return nil, err
		}
		return s, nil
	}
}

const stageSuffix = ".tmp"

// noteLeftovers remarks on the staging folders of others for the same target.
func (t *target) noteLeftovers(parent, prefix string) {
	entries, _ := os.ReadDir(parent) // only for the remark
	for _, e := range entries {
		n := e.Name()
		if e.IsDir() && strings.HasPrefix(n, prefix) && strings.HasSuffix(n, stageSuffix) && len(n) == len(prefix)+8+len(stageSuffix) {
			t.notes = append(t.notes, fmt.Sprintf("%s is of a conversion that was killed, or still runs", filepath.Join(parent, n)))
		}
	}
}

// makeParents is os.MkdirAll that remembers what it made.
func (s *stage) makeParents(dir string) error {
	var missing []string
	for {
		_, err := os.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, dir)
		if dir == filepath.Dir(dir) {
			return err // a volume that is not there
		}
		dir = filepath.Dir(dir)
	}
	for _, d := range slices.Backward(missing) {
		err := os.Mkdir(d, 0o777)
		if info, serr := os.Stat(d); errors.Is(err, fs.ErrExist) && serr == nil && info.IsDir() {
			continue // somebody else made it meanwhile: it is not ours to remove
		}
		if err != nil {
			return err
		}
		s.made = append(s.made, d)
	}
	return nil
}

// removeParents removes what makeParents made, unless others use it by now.
func (s *stage) removeParents() {
	for _, d := range slices.Backward(s.made) {
		_ = os.Remove(d) // fails where it is not empty, and is then to stay
	}
}

// discard removes everything that was made.
func (s *stage) discard() {
	if s.keep {
		return
	}
	_ = os.RemoveAll(s.dir) // the error that led here is the one to report
	s.removeParents()
}

// path is that of a file while it is staged.
func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// create writes one file and makes its bytes durable.
func (s *stage) create(ctx context.Context, o *output) (err error) {
	f, err := os.OpenFile(s.path(o.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if err := o.content.writeTo(ctx, f); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.Sync()
}

// syncDir makes renames in a folder durable, where the system has a way to.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // renames are journalled, and folders cannot be synced
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
