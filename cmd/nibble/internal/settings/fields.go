package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"nibble/quant"
	"nibble/store"
)

// field is one field of store.Config as users write it.
type field struct {
	name  string   // in YAML; NIBBLE_NAME in the environment
	flag  string   // "" for none
	usage string   // of the flag
	kind  string   // what the flag takes, as help calls it
	words []string // what the flag takes, where that is a list
	set   func(*store.Config, string) error
	get   func(store.Config) any // of an effective Config
}

// fields lists the settings in the order in which they are shown.
var fields = []field{
	{
		name: "cache_budget", flag: "budget", kind: "size",
		usage: "hold at most so many decoded bytes: 4GiB, 25% of memory, 0 to keep nothing, or auto for 25% (default auto)",
		set: func(c *store.Config, s string) error {
			n, err := ParseSize(s, Memory)
			if n == 0 && err == nil {
				n = store.NoCache
			}
			c.CacheBudget = n
			return err
		},
		get: func(c store.Config) any { return max(c.CacheBudget, 0) },
	},
	number("workers", "decode on so many goroutines at once (default one a processor)", func(c *store.Config) *int { return &c.Workers }),
	word("policy", "what leaves the cache first", func(c *store.Config) *string { return &c.Policy }, "lru", "sweep", "2q", "auto"),
	number("prefetch", "decode so many layers ahead (default 0)", func(c *store.Config) *int { return &c.Prefetch }),
	word("full", "what to do when the budget is taken", func(c *store.Config) *string { return &c.Full }, "wait", "fail"),
	yesNo("strict", "refuse a tensor that is larger than the budget", func(c *store.Config) *bool { return &c.Strict }),
	word("source_pages", "page cache behind what was decoded", func(c *store.Config) *string { return &c.SourcePages }, "keep", "drop"),
	word("backend", "how to read files", func(c *store.Config) *string { return &c.Backend }, "auto", "mmap", "pread"),
	yesNo("copy_plain", "copy plain tensors instead of lending views of the file", func(c *store.Config) *bool { return &c.CopyPlain }),
	word("kernels", "decoding kernels", func(c *store.Config) *string { return &c.Kernels }, append([]string{"auto"}, quant.Kernels()...)...),
	number("descriptors", "keep at most so many files open (default a quarter of what the system allows)", func(c *store.Config) *int { return &c.Descriptors }),
	limit(number("limits.depth", "", func(c *store.Config) *int { return &c.Limits.Depth })),
	limit(size("limits.memory", func(c *store.Config) *int64 { return &c.Limits.Memory })),
	limit(number("limits.records", "", func(c *store.Config) *int64 { return &c.Limits.Records })),
	limit(size("limits.pickle_bytes", func(c *store.Config) *int64 { return &c.Limits.PickleBytes })),
}

// limit makes f a setting without a flag: for files and the environment.
func limit(f field) field {
	f.flag = ""
	return f
}

// refused is what the store has against the value that text is, where it reads
// as one; the caller says whose value it is.
func (f field) refused(text string) error {
	var c store.Config
	if err := f.set(&c, text); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), f.name+" is "))
	}
	return nil
}

func flagName(name string) string { return strings.ReplaceAll(name, "_", "-") }

func number[N int | int64](name, usage string, at func(*store.Config) *N) field {
	return field{
		name: name, flag: flagName(name), usage: usage, kind: "n",
		set: func(c *store.Config, s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if errors.Is(err, strconv.ErrRange) || int64(N(n)) != n {
				return fmt.Errorf("%q is out of range", s)
			}
			if err != nil {
				return fmt.Errorf("%q is not a whole number", s)
			}
			*at(c) = N(n)
			return nil
		},
		get: func(c store.Config) any { return *at(&c) },
	}
}

func size(name string, at func(*store.Config) *int64) field {
	return field{
		name: name,
		set: func(c *store.Config, s string) (err error) {
			*at(c), err = ParseSize(s, Memory)
			return err
		},
		get: func(c store.Config) any { return *at(&c) },
	}
}

// word is a field that takes one of words, the first by default.
func word(name, usage string, at func(*store.Config) *string, words ...string) field {
	last := len(words) - 1
	choice := words[last]
	if last > 0 {
		choice = strings.Join(words[:last], ", ") + " or " + choice
	}
	return field{
		name: name, flag: flagName(name), kind: "word", words: words,
		usage: fmt.Sprintf("%s: %s (default %s)", usage, choice, words[0]),
		set:   func(c *store.Config, s string) error { *at(c) = s; return nil },
		get:   func(c store.Config) any { return *at(&c) },
	}
}

// kindBool is what pflag calls a flag that alone means true.
const kindBool = "bool"

func yesNo(name, usage string, at func(*store.Config) *bool) field {
	return field{
		name: name, flag: flagName(name), usage: usage, kind: kindBool,
		set: func(c *store.Config, s string) error {
			b, err := strconv.ParseBool(s)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", s)
			}
			*at(c) = b
			return nil
		},
		get: func(c store.Config) any { return *at(&c) },
	}
}

// AddFlags adds --config and the flags of the named settings, all of them when
// none is named, to fs.
func AddFlags(fs *pflag.FlagSet, names ...string) {
	fs.String(fileFlag, "", "read settings from this YAML `file` (default nibble.yaml here, or in the user's configuration folder)")
	for _, f := range fields {
		if f.flag == "" || len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		flag := fs.VarPF(&text{kind: f.kind}, f.flag, "", f.usage)
		if f.kind == kindBool {
			flag.NoOptDefVal = "true"
		}
	}
}

// Words lists, by flag, what those flags take that take one of a few words.
func Words() map[string][]string {
	words := map[string][]string{}
	for _, f := range fields {
		if f.words != nil {
			words[f.flag] = f.words
		}
	}
	return words
}

// text is the value of a flag as it was written: Load reads it, so that the
// same rules hold for every source.
type text struct{ value, kind string }

func (t *text) String() string     { return t.value }
func (t *text) Set(s string) error { t.value = s; return nil }
func (t *text) Type() string       { return t.kind }

// find returns the field called name by a file, the environment or a flag. So
// the short name of the budget, that of its flag, will do everywhere.
func find(name string) (field, bool) {
	for _, f := range fields {
		if f.name == name || f.flag == name || strings.ReplaceAll(f.name, ".", "_") == name {
			return f, true
		}
	}
	return field{}, false
}
