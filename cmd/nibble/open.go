package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nibble/cmd/nibble/internal/settings"
	"nibble/store"
)

// The settings that a verb can have flags for: those that change what it does.
var (
	readSettings   = []string{"backend", "descriptors"}
	decodeSettings = append([]string{"cache_budget", "workers", "source_pages", "kernels"}, readSettings...)
	cacheSettings  = append([]string{"policy", "prefetch", "full", "strict", "copy_plain"}, decodeSettings...)
)

// addOpenFlags adds the flags of a verb that opens a checkpoint.
func addOpenFlags(fs *pflag.FlagSet, names []string) {
	settings.AddFlags(fs, names...)
	fs.StringArray("include", nil, "only tensors whose name matches this `glob`; may be given again")
	fs.StringArray("exclude", nil, "no tensors whose name matches this `glob`; may be given again")
}

// filtered reports whether globs leave out some tensors.
func filtered(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("include") || cmd.Flags().Changed("exclude")
}

// loadSettings reads the configuration for cmd.
func (a *app) loadSettings(cmd *cobra.Command) (*settings.Settings, error) {
	s, err := settings.Load(cmd.Flags(), a.environ)
	if err != nil {
		return nil, usageError{err}
	}
	for _, note := range s.Notes {
		a.say("%s", note)
	}
	return s, nil
}

// open opens the checkpoint at path as the flags of cmd say, and passes on what
// the store has to remark. adjust is as for options.
func (a *app) open(ctx context.Context, cmd *cobra.Command, path string, adjust func(*store.Config)) (*store.Store, error) {
	opts, err := a.options(cmd, adjust)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, path, opts...)
	if err != nil {
		return nil, err
	}
	for _, note := range st.Notes() {
		a.say("%s", note)
	}
	if filtered(cmd) && st.Len() == 0 {
		a.say("--include and --exclude leave no tensor")
	}
	return st, nil
}

// options is what the flags of cmd say about opening a checkpoint. adjust,
// where not nil, has the last word on the configuration.
func (a *app) options(cmd *cobra.Command, adjust func(*store.Config)) ([]store.Option, error) {
	s, err := a.loadSettings(cmd)
	if err != nil {
		return nil, err
	}
	if adjust != nil {
		adjust(&s.Config)
	}
	include, _ := cmd.Flags().GetStringArray("include")
	exclude, _ := cmd.Flags().GetStringArray("exclude")
	if err := store.CheckGlobs(append(include, exclude...)); err != nil {
		return nil, usageError{err}
	}
	return []store.Option{
		store.WithConfig(s.Config), store.WithInclude(include...), store.WithExclude(exclude...),
		store.WithLog(func(line string) { a.say("%s", line) }),
	}, nil
}
