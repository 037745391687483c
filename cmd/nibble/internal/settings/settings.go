// Package settings reads the configuration of the command: a YAML file, the
// environment and flags, each overriding the one before.
package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"nibble/store"
)

const (
	prefix   = "NIBBLE_"
	fileEnv  = "NIBBLE_CONFIG"
	fileFlag = "config"
	fileName = "nibble.yaml"
)

// Setting is the value of one setting and where it came from.
type Setting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"` // default, a file, a variable or a flag
}

// Settings is a configuration and its origin.
type Settings struct {
	Config store.Config
	// List holds the effective value of every setting.
	List []Setting
	// Notes are remarks about the environment for people.
	Notes []string
}

// layer is one place that values come from.
type layer struct {
	values *koanf.Koanf
	file   string                  // "" for the environment and flags
	call   func(key string) string // what key is called there
}

// where names the source of key.
func (l layer) where(key string) string {
	if l.file != "" {
		return l.file
	}
	return l.call(key)
}

// about is how a complaint about key begins.
func (l layer) about(key string) string {
	if l.file != "" {
		return l.file + ": " + key
	}
	return l.call(key)
}

// origin is where a value came from and how it was written there.
type origin struct {
	layer
	key, text string
}

// Load reads the settings. flags holds the flags that AddFlags added; environ is
// the environment, as from os.Environ. All problems are reported at once.
func Load(flags *pflag.FlagSet, environ []string) (*Settings, error) {
	path, err := configFile(flags, environ)
	if err != nil {
		return nil, err
	}
	layers, err := load(path, flags, environ)
	if err != nil {
		return nil, err
	}
	s := &Settings{}
	given, errs := s.apply(layers)
	for _, f := range fields {
		if o, ok := given[f.name]; ok {
			if err := f.refused(o.text); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", o.about(o.key), err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if _, ok := given["cache_budget"]; !ok {
		s.autoBudget()
	}
	s.list(given)
	return s, nil
}

// configFile decides which file to read: the flag's, the environment's, that of
// the working directory, the user's. "" means that there is none.
func configFile(flags *pflag.FlagSet, environ []string) (string, error) {
	if f := flags.Lookup(fileFlag); f != nil && f.Changed {
		return f.Value.String(), nil
	}
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, fileEnv+"="); ok && v != "" {
			return v, nil
		}
	}
	candidates := []string{fileName}
	if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "nibble", fileName))
	}
	for _, path := range candidates {
		_, err := os.Stat(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: %w", path, bare(err))
		}
	}
	return "", nil
}

func load(path string, flags *pflag.FlagSet, environ []string) ([]layer, error) {
	var layers []layer
	add := func(p koanf.Provider, parser koanf.Parser, file string, call func(string) string) error {
		k := koanf.New(".")
		if err := k.Load(p, parser); err != nil {
			return err
		}
		layers = append(layers, layer{k, file, call})
		return nil
	}
	if path != "" {
		text, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, bare(err))
		}
		if err := add(rawbytes.Provider(text), yaml.Parser(), path, func(key string) string { return key }); err != nil {
			return nil, syntaxError(path, err)
		}
	}
	variables := env.Opt{
		Prefix:      prefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(k, v string) (string, any) {
			if k == fileEnv || v == "" {
				return "", nil
			}
			return strings.ToLower(strings.TrimPrefix(k, prefix)), v
		},
	}
	if err := add(env.Provider(".", variables), nil, "", func(key string) string { return prefix + strings.ToUpper(key) }); err != nil {
		return nil, err
	}
	changed := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		if _, ok := find(f.Name); !ok || !f.Changed {
			return "", nil
		}
		return f.Name, f.Value.String()
	})
	if err := add(changed, nil, "", func(key string) string { return "--" + key }); err != nil {
		return nil, err
	}
	return layers, nil
}

// maxFile is more than anybody writes into a settings file, in bytes.
const maxFile = 1 << 20

// readFile reads a settings file. One in the working directory is found without
// being asked for, and may be anything: what is no regular file is refused
// without waiting for it.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	return text, err
}

// syntaxError is what the YAML parser says about a file, in the words of
// people who do not know what it parses to: one error a line.
func syntaxError(path string, err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
	var errs []error
	for _, line := range strings.Split(text, "\n") {
		if strings.HasSuffix(line, "into map[string]interface {}") {
			line = "want settings by name, such as workers: 2"
		}
		errs = append(errs, fmt.Errorf("%s: %s", path, strings.TrimSpace(line)))
	}
	return errors.Join(errs...)
}

// bare drops the path that an error of the file system repeats.
func bare(err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// apply sets the fields layer by layer. It returns where each value came from
// that was given, by name of the setting.
func (s *Settings) apply(layers []layer) (given map[string]origin, errs []error) {
	given = map[string]origin{}
	for _, l := range layers {
		said := map[string]string{} // what each setting is called in this layer
		for _, key := range slices.Sorted(slices.Values(l.values.Keys())) {
			f, ok := find(key)
			if !ok {
				errs = s.unknown(errs, l.where(key), key)
				continue
			}
			if other, twice := said[f.name]; twice {
				errs = append(errs, fmt.Errorf("%s and %s are the same setting", l.about(other), l.call(key)))
			}
			said[f.name] = key
			text, err := written(l.values.Get(key))
			if err == nil {
				err = f.set(&s.Config, text)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", l.about(key), err))
				continue
			}
			given[f.name] = origin{l, key, text}
		}
	}
	return given, errs
}

// written is a value as it was written.
func written(value any) (string, error) {
	switch value.(type) {
	case nil:
		return "", errors.New("no value given")
	case []any, map[string]any:
		return "", errors.New("want a single value")
	}
	return fmt.Sprint(value), nil
}

// autoBudget is the command's default: a share of memory, or the library's
// default where nobody can tell how much there is.
func (s *Settings) autoBudget() {
	n, err := ParseSize("auto", Memory)
	if err != nil {
		n = store.DefaultCacheBudget
		s.Notes = append(s.Notes, err.Error())
	}
	s.Config.CacheBudget = n
}

// unknown complains about a key in a file. The environment is not nibble's
// alone: a variable of no setting is worth a note.
func (s *Settings) unknown(errs []error, where, key string) []error {
	if strings.HasPrefix(where, prefix) {
		s.Notes = append(s.Notes, where+" is not a setting")
		return errs
	}
	return append(errs, fmt.Errorf("%s: %q is not a setting: want one of %s", where, key, strings.Join(names(), ", ")))
}

func names() []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.name
	}
	return all
}

func (s *Settings) list(given map[string]origin) {
	effective := s.Config.Effective()
	for _, f := range fields {
		source := "default"
		if o, ok := given[f.name]; ok {
			source = o.where(o.key)
		}
		s.List = append(s.List, Setting{f.name, f.get(effective), source})
	}
}
