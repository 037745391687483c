package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"nibble/cmd/nibble/internal/settings"
	"nibble/quant"
)

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version and the decoding kernels in use",
		Long: "version prints the version, what it was built with, the decoding kernels that the\n" +
			"settings choose, and those that there are on this machine.",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.loadSettings(cmd)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "nibble %s %s %s/%s\nkernels %s, of %s\n", version(), runtime.Version(),
				runtime.GOOS, runtime.GOARCH, s.Config.Effective().Kernels, strings.Join(quant.Kernels(), " "))
			return err
		},
	}
	settings.AddFlags(cmd.Flags(), "kernels")
	return cmd
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
	build := map[string]string{}
	for _, s := range info.Settings {
		build[s.Key] = s.Value
	}
	if commit := build["vcs.revision"]; len(commit) >= 12 {
		v = commit[:12]
		if build["vcs.modified"] == "true" {
			v += "+changes"
		}
		return v
	}
	return "(devel)"
}
