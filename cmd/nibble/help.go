package main

import (
	"github.com/spf13/cobra"

	"nibble/cmd/nibble/internal/settings"
)

// usageTemplate is cobra's own in the voice of the command.
const usageTemplate = `usage:
{{- if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND
{{- else}}
  {{.UseLine}}
{{- end}}
{{- if .HasAvailableSubCommands}}

commands:
{{- range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}
{{- end}}{{end}}
{{- end}}
{{- if .HasAvailableLocalFlags}}

flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{- end}}
{{- if .HasAvailableSubCommands}}

{{.CommandPath}} COMMAND --help says more about one
{{- end}}
`

// speak gives what cobra adds by itself the voice of the command, and the shell
// the words that flags take.
func speak(root *cobra.Command) {
	root.SetUsageTemplate(usageTemplate)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	short := map[string]string{
		"help":       "explain a command",
		"completion": "write completions for a shell",
	}
	for _, cmd := range root.Commands() {
		for flag, words := range settings.Words() {
			if cmd.Flags().Lookup(flag) != nil {
				complete(cmd, flag, words)
			}
		}
		cmd.Flags().BoolP("help", "h", false, "print this")
		if s, ok := short[cmd.Name()]; ok {
			cmd.Short = s
		}
	}
	root.Flags().BoolP("help", "h", false, "print this")
	root.Flags().BoolP("version", "v", false, "print the version")
}
