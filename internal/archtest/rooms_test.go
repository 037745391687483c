package archtest

// room is what one package may import. A package whose path starts with the
// room's belongs to it, unless a longer path matches.
type room struct {
	level   int      // no import runs to a higher level
	imports []string // rooms it may import; nil for all that are lower
	modules []string // modules of others it may import
}

// rooms is the map in ARCHITECTURE.md.
var rooms = map[string]room{
	"internal/archtest":   {level: 0},
	"internal/floor":      {level: 0, modules: []string{"golang.org/x/sys"}},
	"internal/invariants": {level: 0},
	"internal/rule":       {level: 0},
	"internal/testkit":    {level: 0, modules: []string{"golang.org/x/sys"}},
	"tensor":              {level: 0, modules: []string{"github.com/x448/float16"}},

	"mmap": {
		level: 1, imports: []string{"internal/invariants", "internal/rule"},
		modules: []string{"github.com/edsrzf/mmap-go", "github.com/hashicorp/golang-lru/v2", "golang.org/x/sys"},
	},
	"concurrency": {
		level: 1, imports: []string{"internal/invariants", "internal/rule"},
		modules: []string{"golang.org/x/sync"},
	},

	// The cache knows nothing of tensors, and decoders nothing of files.
	"cache": {
		level: 2, imports: []string{"concurrency", "internal/invariants", "internal/rule"},
		modules: []string{"github.com/hashicorp/golang-lru/v2", "golang.org/x/sys"},
	},
	"quant": {
		level: 2, imports: []string{"concurrency", "tensor", "internal/floor", "internal/invariants", "internal/rule"},
		modules: []string{"github.com/go-json-experiment/json", "golang.org/x/sys"},
	},

	// Containers turn bytes into descriptors: no mapping, no cache, no decoder.
	"store/safetensors": {
		level: 3, imports: []string{"tensor", "internal/invariants", "internal/rule"},
		modules: []string{"github.com/go-json-experiment/json"},
	},
	"store/pytorch": {level: 3, imports: []string{"tensor", "internal/invariants", "internal/rule"}},

	"bench/synth": {level: 4, imports: []string{"store/safetensors", "tensor"}},

	"store":   {level: 4, modules: []string{"golang.org/x/sync"}},
	"convert": {level: 5, modules: []string{"golang.org/x/sync", "golang.org/x/sys"}},
	"bench":   {level: 6, modules: []string{"github.com/dustin/go-humanize", "golang.org/x/sync", "golang.org/x/sys"}},

	"cmd/nibble/internal/table": {level: 7, imports: []string{}, modules: []string{"github.com/mattn/go-runewidth"}},
	"cmd/nibble/internal/settings": {
		level: 7, imports: []string{"store", "quant"},
		modules: []string{
			"github.com/KimMachineGun/automemlimit", "github.com/dustin/go-humanize",
			"github.com/knadh/koanf", "github.com/spf13/pflag",
		},
	},
	"cmd/nibble": {
		level: 8,
		modules: []string{
			"github.com/dustin/go-humanize", "github.com/sbinet/npyio", "github.com/spf13/cobra",
			"github.com/spf13/pflag", "github.com/vbauerster/mpb/v8", "golang.org/x/sync", "golang.org/x/term",
		},
	},
}

// helpers are rooms for tests and benchmarks, whatever their level, and for
// nobody else.
var helpers = []string{"bench/synth", "internal/testkit"}

// testModules are what the tests of any room may import beyond what the room
// may.
var testModules = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "github.com/x448/float16", "go.uber.org/goleak",
	"golang.org/x/sys", "pgregory.net/rapid",
}
