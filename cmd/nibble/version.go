package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"nibble/quant"
)

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version and the decoding kernels in use",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "nibble %s %s %s/%s\nkernels %s, of %s\n",
				version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, quant.Active(), strings.Join(quant.Kernels(), " "))
			return err
		},
	}
}

// version is the module's version or, for a build from a checkout, its commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	v := info.Main.Version
	if v != "" && v != "(devel)" {
		return v
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if commit := settings["vcs.revision"]; len(commit) >= 12 {
		v = commit[:12]
		if settings["vcs.modified"] == "true" {
			v += "+changes"
		}
		return v
	}
	return "(devel)"
}
