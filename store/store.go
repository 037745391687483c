package store

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"nibble/cache"
	"nibble/concurrency"
	"nibble/internal/rule"
	"nibble/mmap"
	"nibble/quant"
	"nibble/tensor"
)

// Store is an open checkpoint.
type Store struct {
	path   string
	cfg    Config // effective
	loc    *location
	files  *mmap.Files
	shards []*shard
	catalog
	include, exclude *regexp.Regexp     // nil: all, none
	shown            []*Tensor          // the logical tensors that the globs leave
	layers           func() []layerSpan // computed once, on first use
	turns            [32]chan struct{}  // to resolve tensors
	handles          func() []Tensor    // of StoredTensors, made once, on first use

	cache    *cache.Cache[key]
	owned    bool // the cache is this store's alone
	pool     *concurrency.Pool
	scratch  sync.Pool // of *scratch
	views    viewTable
	counters counters

	life     sync.Mutex
	closed   bool
	shut     atomic.Bool   // closed, for who cannot take the lock
	busy     int           // operations between begin and end
	quiet    chan struct{} // closed when busy falls to 0 after Close; nil before Close
	closing  context.Context
	shutdown context.CancelFunc
}

// counters are the store's own statistics, beside the cache's.
type counters struct {
	views   atomic.Int64 // leases of zero-copy views
	decoded atomic.Int64 // bytes of output written by decoders
}

// key names a decoded tensor in the cache. The handle stands for store and
// tensor, so that several stores may share one cache.
type key struct {
	t   *Tensor
	dt  tensor.DType
	raw bool // the stored bytes of the packed tensor, not its elements
}

// String names the output for people, in the log of a long wait.
func (k key) String() string {
	if k.raw {
		return fmt.Sprintf("%q raw", k.t.name)
	}
	return fmt.Sprintf("%q as %s", k.t.name, k.dt)
}

// Option is an option of Open.
type Option func(*options)

type options struct {
	cfg              Config
	cache            *Cache
	include, exclude []string
	log              func(string)
}

// WithConfig sets the configuration. Without it the zero Config holds.
func WithConfig(c Config) Option { return func(o *options) { o.cfg = c } }

// WithInclude keeps only tensors whose name matches one of the globs. In a
// glob, * matches any run of characters, ? any one, [ab] a class.
func WithInclude(globs ...string) Option {
	return func(o *options) { o.include = append(o.include, globs...) }
}

// WithExclude leaves out tensors whose name matches one of the globs.
func WithExclude(globs ...string) Option {
	return func(o *options) { o.exclude = append(o.exclude, globs...) }
}

// WithLog receives one line when a caller has waited long for the budget. The
// default is silence.
func WithLog(f func(line string)) Option { return func(o *options) { o.log = f } }

// Open opens the checkpoint at path: a container file, an index, or a
// directory of either. It reads headers only. ctx bounds the opening, not the
// life of the store. The caller must Close it.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	st, err := newStore(path, opts)
	if err != nil {
		return nil, err
	}
	if err := st.openFiles(ctx); err != nil {
		st.Close()
		return nil, err
	}
	if err := st.readShards(ctx); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

// backends are the words of Config.Backend.
var backends = map[string]mmap.Backend{"auto": mmap.Auto, "mmap": mmap.Map, "pread": mmap.Pread}

func (st *Store) openFiles(ctx context.Context) (err error) {
	if st.loc, err = locate(st.path); err != nil {
		return err
	}
	for _, p := range st.loc.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := st.files.Open(p, backends[st.cfg.Backend])
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(st.loc.root, p)
		if err != nil {
			rel = filepath.Base(p)
		}
		st.shards = append(st.shards, &shard{file: f, rel: filepath.ToSlash(rel)})
	}
	return nil
}

// OpenReaderAt opens a checkpoint of one container held by r, size bytes long.
// Nothing is mapped: every use reads from r, concurrently. r must stay usable
// until Close and is not closed. name stands for the path in errors.
func OpenReaderAt(ctx context.Context, name string, r io.ReaderAt, size int64, opts ...Option) (*Store, error) {
	if size < 0 {
		return nil, &Error{Path: name, Offset: -1, Err: fmt.Errorf("size is %d bytes", size)}
	}
	st, err := newStore(name, opts)
	if err != nil {
		return nil, err
	}
	st.loc = &location{path: name}
	st.shards = []*shard{{file: mmap.NewReaderAt(name, r, size), rel: name}}
	if err := st.readShards(ctx); err != nil {
		st.Close()
		return nil, err
	}
	return st, nil
}

func newStore(path string, opts []Option) (*Store, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.cfg.Validate(); err != nil {
		return nil, err
	}
	cfg := o.cfg.Effective()
	st := &Store{path: path, cfg: cfg, files: mmap.NewFiles(cfg.Descriptors), pool: concurrency.NewPool(cfg.Workers)}
	if o.cfg.Kernels != "" {
		if err := quant.SetKernels(cfg.Kernels); err != nil {
			return nil, err
		}
	}
	var err error
	if st.include, err = globs(o.include); err != nil {
		return nil, err
	}
	if st.exclude, err = globs(o.exclude); err != nil {
		return nil, err
	}
	st.handles = sync.OnceValue(st.storedHandles)
	st.layers = sync.OnceValue(func() []layerSpan { return groupLayers(st.shown) })
	for i := range st.turns {
		st.turns[i] = make(chan struct{}, 1)
	}
	st.closing, st.shutdown = context.WithCancel(context.Background())
	if o.cache != nil {
		st.cache = o.cache.c
	} else {
		st.cache, st.owned = newCache(cfg, o.log), true
	}
	return st, nil
}

// readShards reads the headers of all shards and builds the catalog.
func (st *Store) readShards(ctx context.Context) error {
	index := st.loc.index
	st.catalog = newCatalog(index)
	byRel := map[string]*shard{}
	for _, sh := range st.shards {
		if err := ctx.Err(); err != nil {
			return err
		}
		byRel[sh.rel] = sh
		if err := st.readShard(sh); err != nil {
			return rule.Locate(err, sh.file.Path(), "")
		}
	}
	if index != nil {
		st.addMissing(index, byRel)
	}
	st.group(st)
	st.findAliases()
	for i := range st.tensors {
		if t := &st.tensors[i]; st.shows(t.name) {
			st.shown = append(st.shown, t)
		}
	}
	return nil
}

// shows applies the include and exclude globs.
func (st *Store) shows(name string) bool {
	return (st.include == nil || st.include.MatchString(name)) &&
		(st.exclude == nil || !st.exclude.MatchString(name))
}

// Path is the path that was given to Open.
func (st *Store) Path() string { return st.path }

// Config is the effective configuration as the store was opened: see
// Config.Effective. The budget in force is in Stats: SetBudget changes it, and
// a shared cache has its own.
func (st *Store) Config() Config { return st.cfg }

// Notes are remarks about the checkpoint for people: files beside it that were
// left alone, copies of tensors that the index does not name.
func (st *Store) Notes() []string {
	notes := slices.Clone(st.loc.notes)
	if n := len(st.stale); n > 0 {
		what := "the index is stale: it disagrees with the shards about " + count(n, "tensor")
		if st.loc.index == nil {
			what = count(n, "copy", "copies") + " of tensors left alone: an earlier shard holds them too"
		}
		notes = append(notes, what+"; nibble verify names them")
	}
	return notes
}

// Metadata is what the containers' own metadata says, first shard first. The
// caller owns the map.
func (st *Store) Metadata() map[string]string { return maps.Clone(st.metadata) }

// Aliases maps names that the metadata gives to tied weights to the tensors
// that hold them. The caller owns the map.
func (st *Store) Aliases() map[string]string { return maps.Clone(st.aliases) }

// Opaque lists the values of torch files whose classes nibble does not read.
// The caller owns the slice.
func (st *Store) Opaque() []Opaque { return slices.Clone(st.opaque) }

// StoredBytes is the size of all stored tensors of the checkpoint, bytes that
// several tensors share counted once.
func (st *Store) StoredBytes() int64 {
	var n int64
	for _, sh := range st.shards {
		n += sh.stored
	}
	return n
}

// Files are the container files, relative to the checkpoint, in order.
func (st *Store) Files() []string {
	names := make([]string, len(st.shards))
	for i, sh := range st.shards {
		names[i] = sh.rel
	}
	return names
}

// Tensors yields the logical tensors: shards by name, then offset (in torch
// files, pickle order). Companions of quantized tensors are not among them.
func (st *Store) Tensors() iter.Seq[*Tensor] { return slices.Values(st.shown) }

// Len is the number of logical tensors.
func (st *Store) Len() int { return len(st.shown) }

// StoredTensors yields a handle for every stored tensor that the globs leave,
// companions included, each as the plain tensor that its container declares.
func (st *Store) StoredTensors() iter.Seq[*Tensor] {
	return func(yield func(*Tensor) bool) {
		handles := st.handles()
		for i := range handles {
			if st.shows(handles[i].name) && !yield(&handles[i]) {
				return
			}
		}
	}
}

// storedHandles makes a plain handle of every entry. They are kept: the cache
// knows an output by its handle.
func (st *Store) storedHandles() []Tensor {
	handles := make([]Tensor, len(st.entries))
	for i := range handles {
		h, e := &handles[i], &st.entries[i]
		h.st, h.name, h.e = st, e.name, e
	}
	return handles
}

// StoredTensor finds one of the StoredTensors by its exact name. The error is
// a *NotFoundError.
func (st *Store) StoredTensor(name string) (*Tensor, error) {
	i, ok := st.byName[name]
	if !ok {
		return nil, &NotFoundError{Path: st.path, Name: name, store: st}
	}
	return &st.handles()[i], nil
}

// Tensor finds a logical tensor by its exact name, or by an alias of it. The
// error is a *NotFoundError that suggests the nearest names.
func (st *Store) Tensor(name string) (*Tensor, error) {
	if alias, ok := st.aliases[name]; ok {
		name = alias
	}
	if i, ok := st.byName[name]; ok && st.entries[i].owner < 0 {
		return &st.tensors[st.entries[i].logical], nil
	}
	return nil, &NotFoundError{Path: st.path, Name: name, store: st}
}
