package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"nibble/internal/rule"
	"nibble/store/safetensors"
)

// location is what a path given to Open turns out to be: the files to open, in
// order, and the index that says which tensor is where.
type location struct {
	root  string             // what names of files are relative to: the path if that is a directory, else its
	files []string           // paths of the container files, sorted by name
	index *safetensors.Index // nil without one
	path  string             // the file or index that decides, for messages
	notes []string           // what lay beside it and was left alone
}

// locate finds the checkpoint that path names: a container file, an index, or
// a directory of either.
func locate(path string) (*location, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, statError(path, err)
	}
	if info.IsDir() {
		return locateDir(path)
	}
	if info.Mode().IsRegular() && looksLikeJSON(path) {
		return locateIndex(path)
	}
	return &location{root: filepath.Dir(path), files: []string{path}, path: path}, nil
}

// statError names the target too when path is a link to nothing, as in a
// half-downloaded Hugging Face cache.
func statError(path string, err error) error {
	if target, lerr := os.Readlink(path); lerr == nil && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("link to %s: %w", target, fs.ErrNotExist)
	} else if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{Path: path, Offset: -1, Err: fmt.Errorf("%w: %w", ErrNotFound, err)}
	}
	return &Error{Path: path, Offset: -1, Err: err}
}

// looksLikeJSON tells an index from a container by its first bytes. The length
// that opens a safetensors file may look like a brace, but has zeros behind it.
func looksLikeJSON(path string) bool {
	if strings.HasSuffix(path, ".index.json") {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [64]byte
	n, _ := io.ReadFull(f, b[:])
	head := strings.TrimLeft(string(b[:n]), "\ufeff \t\r\n")
	return strings.HasPrefix(head, "{") && !strings.Contains(head, "\x00")
}

func locateIndex(path string) (*location, error) {
	index, err := readIndex(path)
	if err != nil {
		return nil, rule.Locate(err, path, "")
	}
	loc := &location{root: filepath.Dir(path), index: index, path: path}
	var missing []string
	for _, s := range index.Shards {
		p := filepath.Join(loc.root, s)
		if _, err := os.Stat(p); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, statError(p, err)
			}
			if target, err := os.Readlink(p); err == nil {
				s += " (link to " + target + ")"
			}
			missing = append(missing, s)
			continue
		}
		loc.files = append(loc.files, p)
	}
	if len(missing) > 0 {
		return nil, missingShards(loc, missing)
	}
	return loc, nil
}

// missingShards names every shard that is not there, and the containers that
// are there without being named: together they show a stale index.
func missingShards(loc *location, missing []string) error {
	var others []string
	entries, _ := os.ReadDir(loc.root)
	for _, e := range entries {
		if n := e.Name(); isContainer(n) && !slices.Contains(loc.index.Shards, n) {
			others = append(others, n)
		}
	}
	e := rule.New(rule.ShardMissing, "missing %s: %s", count(len(missing), "shard"), strings.Join(missing, ", "))
	if len(others) > 0 {
		const most = 8
		list := strings.Join(others[:min(len(others), most)], ", ")
		if len(others) > most {
			list += ", …"
		}
		e = rule.New(rule.ShardMissing, "%w; the index may be stale: %s beside it that it does not name: %s",
			e.Err, count(len(others), "file"), list)
	}
	e.Path = loc.path
	return e
}

func readIndex(path string) (*safetensors.Index, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, safetensors.MaxIndex+1))
	if err != nil {
		return nil, err
	}
	if len(data) > safetensors.MaxIndex {
		return nil, rule.New(rule.IndexJSON, "index is larger than %d bytes", safetensors.MaxIndex)
	}
	return safetensors.ParseIndex(data)
}

// wellKnown are the names that decide what a directory holds, first match
// first. A name with a * must match exactly one file.
var wellKnown = []string{
	"model.safetensors.index.json",
	"model.safetensors",
	"*.safetensors.index.json",
	"pytorch_model.bin.index.json",
	"pytorch_model.bin",
	"*.bin.index.json",
	"adapter_model.safetensors",
	"adapter_model.bin",
}

// notTheModel are files that lie beside a model and are never it.
var notTheModel = regexp.MustCompile(`^(training_args\.bin|optimizer\..*|scheduler\..*|rng_state.*|scaler\.pt)$`)

// copyOfModel are files in their maker's own layout: a second copy of the
// model, or the only one.
var copyOfModel = regexp.MustCompile(`^consolidated.*\.(safetensors|pth)$`)

// containerExts are the names of containers, the first preferred.
var containerExts = []string{".safetensors", ".bin", ".pt", ".pth"}

// otherExts are what containers are called too, and other files: only their
// bytes tell.
var otherExts = []string{".ckpt", ".th", ".pkl"}

func isContainer(name string) bool { return slices.Contains(containerExts, filepath.Ext(name)) }

func locateDir(dir string) (*location, error) {
	snapshot, notes, err := hubSnapshot(dir)
	if err != nil {
		return nil, err
	}
	loc, err := locateFiles(snapshot)
	if err != nil {
		return nil, err
	}
	loc.notes = append(notes, loc.notes...)
	return loc, loc.nameFrom(dir)
}

// nameFrom makes names of files relative to dir, which holds the root, and
// those of the index with them: tensors are matched to shards by name.
func (loc *location) nameFrom(dir string) error {
	rel, err := filepath.Rel(dir, loc.root)
	if err != nil || rel == "." {
		return err
	}
	loc.root = dir
	if loc.index == nil {
		return nil
	}
	named := make(map[string]string, len(loc.index.Shards))
	for i, s := range loc.index.Shards {
		named[s] = filepath.ToSlash(filepath.Join(rel, s))
		loc.index.Shards[i] = named[s]
	}
	for i := range loc.index.WeightMap {
		w := &loc.index.WeightMap[i]
		w.Shard = named[w.Shard]
	}
	return nil
}

// locateFiles finds the checkpoint among the files of dir.
func locateFiles(dir string) (*location, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, statError(dir, err)
	}
	var names, others []string
	for _, e := range entries {
		switch n := e.Name(); {
		case e.IsDir():
		case isContainer(n) || strings.HasSuffix(n, ".index.json"):
			names = append(names, n)
		case slices.Contains(otherExts, filepath.Ext(n)):
			others = append(others, n)
		}
	}
	for _, pattern := range wellKnown {
		var match []string
		for _, n := range names {
			if ok, _ := filepath.Match(pattern, n); ok && !notTheModel.MatchString(n) {
				match = append(match, n)
			}
		}
		if len(match) > 1 {
			return nil, &Error{Path: dir, Offset: -1, Err: fmt.Errorf("%d indexes, name one: %s", len(match), strings.Join(match, ", "))}
		}
		if len(match) == 1 {
			loc, err := locateIn(dir, match[0])
			if err == nil {
				loc.noteOthers(names, match[0])
			}
			return loc, err
		}
	}
	return locateUnnamed(dir, names, others)
}

func locateIn(dir, name string) (*location, error) {
	path := filepath.Join(dir, name)
	if strings.HasSuffix(name, ".index.json") {
		return locateIndex(path)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, statError(path, err)
	}
	return &location{root: dir, files: []string{path}, path: path}, nil
}

// holdsModel reports whether containers lie in dir itself.
func holdsModel(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return !e.IsDir() && isContainer(e.Name()) && !notTheModel.MatchString(e.Name())
	})
}

// hubSnapshot finds the snapshot in a Hugging Face cache folder of one model
// (models--org--name): the one refs/main names, else the only one. It is dir
// itself where that is no such folder: a model may have a folder of this name
// beside it.
func hubSnapshot(dir string) (snapshot string, notes []string, err error) {
	snaps := filepath.Join(dir, "snapshots")
	entries, err := os.ReadDir(snaps)
	if err != nil || holdsModel(dir) {
		return dir, nil, nil
	}
	var revs []string
	for _, e := range entries {
		if e.IsDir() {
			revs = append(revs, e.Name())
		}
	}
	if ref, err := os.ReadFile(filepath.Join(dir, "refs", "main")); err == nil && len(ref) < 256 {
		rev := strings.TrimSpace(string(ref))
		if slices.Contains(revs, rev) {
			return filepath.Join(snaps, rev), nil, nil
		}
		notes = append(notes, fmt.Sprintf("refs/main names snapshot %q, which is not there", rev))
	}
	switch len(revs) {
	case 0:
		return "", nil, &Error{Path: snaps, Offset: -1, Err: fmt.Errorf("%w: no snapshot in this folder", ErrNotFound)}
	case 1:
		return filepath.Join(snaps, revs[0]), notes, nil
	}
	return "", nil, &Error{Path: snaps, Offset: -1, Err: fmt.Errorf("several snapshots, name one: %s", strings.Join(revs, ", "))}
}

var shardName = regexp.MustCompile(`^(.+)-(\d{5,})-of-(\d{5,})(\.[a-z]+)$`)

// loneShard reports whether l is one shard of a set, opened by itself.
func (l *location) loneShard() bool {
	if l.index != nil || len(l.files) != 1 {
		return false
	}
	m := shardName.FindStringSubmatch(filepath.Base(l.files[0]))
	return m != nil && strings.Trim(m[3], "0") != "1"
}

// candidates are the files of a directory that may be the model: those of the
// usual names, by extension, and those that are it only where none of the first
// is.
func candidates(dir string, names, others []string) (usual, unusual []string) {
	for _, ext := range containerExts {
		for _, n := range names {
			switch {
			case filepath.Ext(n) != ext || notTheModel.MatchString(n):
			case copyOfModel.MatchString(n):
				unusual = append(unusual, n)
			default:
				usual = append(usual, n)
			}
		}
	}
	for _, n := range others {
		if !notTheModel.MatchString(n) && mayHoldTensors(filepath.Join(dir, n)) {
			unusual = append(unusual, n)
		}
	}
	return usual, unusual
}

// mayHoldTensors judges a file by its first bytes. Of one that cannot be read,
// and of what a failed download leaves, the error of opening it says more.
func mayHoldTensors(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return true
	}
	if !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	var b [safetensors.SniffLen]byte
	n, _ := io.ReadFull(f, b[:])
	return safetensors.Sniff(b[:n], info.Size()) != safetensors.Unknown
}

// locateUnnamed decides a directory without a well-known name or index: one
// complete set of shards, or a single file.
func locateUnnamed(dir string, names, others []string) (*location, error) {
	usual, unusual := candidates(dir, names, others)
	own, notes := unusual, []string(nil)
	if len(usual) > 0 {
		ext := filepath.Ext(usual[0])
		own = slices.DeleteFunc(slices.Clone(usual), func(n string) bool { return filepath.Ext(n) != ext })
	} else if len(own) > 0 {
		what := own[0]
		if len(own) > 1 {
			what += ", …"
		}
		notes = []string{"no model under a usual name: opened " + what}
	}
	if len(own) == 0 {
		msg := "no checkpoint in this directory"
		if names = append(names, others...); len(names) > 0 {
			msg += ": not the model: " + strings.Join(names, ", ")
		}
		return nil, &Error{Path: dir, Offset: -1, Err: fmt.Errorf("%w: %s", ErrNotFound, msg)}
	}
	loc := &location{root: dir, path: dir, notes: notes}
	if len(own) > 1 || shardName.MatchString(own[0]) {
		if err := oneSet(dir, own, append(usual, unusual...)); err != nil {
			return nil, err
		}
	}
	for _, n := range own {
		p := filepath.Join(dir, n)
		if _, err := os.Stat(p); err != nil {
			return nil, statError(p, err)
		}
		loc.files = append(loc.files, p)
	}
	if len(own) == 1 {
		loc.path = loc.files[0]
	}
	loc.noteOthers(names, own...)
	return loc, nil
}

// oneSet checks that names are the shards name-00001-of-0000N of one set, all
// there. candidates are what may be named instead.
func oneSet(dir string, names, candidates []string) error {
	var base, of, ext string
	have := map[int]bool{}
	for _, n := range names {
		m := shardName.FindStringSubmatch(n)
		if m == nil || base != "" && (m[1] != base || m[3] != of || m[4] != ext) {
			return &Error{Path: dir, Offset: -1, Err: fmt.Errorf("several files and no index, name one: %s", strings.Join(candidates, ", "))}
		}
		base, of, ext = m[1], m[3], m[4]
		i, _ := strconv.Atoi(m[2])
		have[i] = true
	}
	total, err := strconv.Atoi(of)
	if err != nil || total < 1 || total > 1<<20 {
		return &Error{Path: dir, Offset: -1, Err: fmt.Errorf("shard count %s is not believable", of)}
	}
	for i := range have {
		if i < 1 || i > total {
			return &Error{Path: dir, Offset: -1, Err: fmt.Errorf("shard %d of a set of %d", i, total)}
		}
	}
	var missing []string
	for i := 1; i <= total; i++ {
		if !have[i] {
			missing = append(missing, fmt.Sprintf("%s-%0*d-of-%s%s", base, len(of), i, of, ext))
		}
	}
	if len(missing) > 0 {
		e := rule.New(rule.ShardMissing, "missing %s: %s", count(len(missing), "shard"), strings.Join(missing, ", "))
		e.Path = dir
		return e
	}
	return nil
}

// noteOthers remembers the container files that were not chosen.
func (loc *location) noteOthers(names []string, chosen ...string) {
	var others []string
	for _, n := range names {
		p := filepath.Join(loc.root, n)
		if !slices.Contains(chosen, n) && !slices.Contains(loc.files, p) {
			others = append(others, n)
		}
	}
	if len(others) > 0 {
		loc.notes = append(loc.notes, "not part of the model, left alone: "+strings.Join(others, ", "))
	}
}

// count is n of what, with its plural where an s does not make it.
func count(n int, what string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + what
	case len(plural) > 0:
		return strconv.Itoa(n) + " " + plural[0]
	}
	return strconv.Itoa(n) + " " + what + "s"
}
