package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nibble/cmd/nibble/internal/settings"
	"nibble/cmd/nibble/internal/table"
)

func configCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "print the settings in effect and where each came from",
		Long: "config prints every setting, its value in effect, and where that came from.\n\n" +
			"Settings are read from a YAML file, then from NIBBLE_* variables, then from flags;\n" +
			"the last one that says something wins. The file is that of --config or NIBBLE_CONFIG,\n" +
			"else nibble.yaml in the working directory, else nibble/nibble.yaml in the user's\n" +
			"configuration folder.\n\n" +
			"A setting may also be called as its flag is: budget is cache_budget, and NIBBLE_BUDGET\n" +
			"is NIBBLE_CACHE_BUDGET.",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.loadSettings(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(map[string][]settings.Setting{"settings": s.List})
			}
			t := table.New(a.stdout, table.Column{Title: "setting"}, table.Column{Title: "value"}, table.Column{Title: "from"})
			for _, v := range s.List {
				t.Row(v.Name, settingText(v), v.Source)
			}
			return t.Flush()
		},
	}
	settings.AddFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// settingText prints a value for people.
func settingText(s settings.Setting) string {
	switch s.Name {
	case "cache_budget", "limits.memory", "limits.pickle_bytes":
		return sizeText(s.Value.(int64))
	}
	return fmt.Sprint(s.Value)
}
