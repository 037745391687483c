package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.CompletionOptions.DisableDefaultCmd = true // there is ours
	for _, cmd := range root.Commands() {
		for flag, words := range settings.Words() {
			if cmd.Flags().Lookup(flag) != nil {
				complete(cmd, flag, words)
			}
		}
		cmd.Flags().BoolP("help", "h", false, "print this")
	}
	root.Flags().BoolP("help", "h", false, "print this")
	root.Flags().BoolP("version", "v", false, "print the version")
}

// helpCommand is cobra's own, which is content with names of no command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "explain a command",
		Long:  "help explains nibble, or one of its commands.",
		Args:  usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && !c.Hidden && strings.HasPrefix(c.Name(), begun) {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if len(args) == 0 {
				return root.Help()
			}
			about, _, err := root.Find(args)
			if err != nil || about == root {
				return noVerb(root, args)
			}
			return about.Help()
		},
	}
}

// shells are those that cobra can write completions for.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand(a *app) *cobra.Command {
	var bare bool
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "write completions for a shell",
		Long: "completion writes a script that completes the commands and flags of nibble in bash,\n" +
			"zsh, fish or powershell. For every new shell to have it, one of these goes where that\n" +
			"shell starts:\n\n" +
			"  ~/.bashrc                   source <(nibble completion bash)\n" +
			"  ~/.zshrc, after compinit    source <(nibble completion zsh)\n" +
			"  ~/.config/fish/config.fish  nibble completion fish | source\n" +
			"  $PROFILE                    nibble completion powershell | Out-String | Invoke-Expression\n\n" +
			"That of bash needs the package bash-completion.",
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !slices.Contains(shells, args[0]) {
				return usagef("no completions for the shell %q: want one of %s", args[0], strings.Join(shells, ", "))
			}
			return usageArgs(cobra.ExactArgs(1))(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch {
			case args[0] == "bash":
				return root.GenBashCompletionV2(a.stdout, !bare)
			case args[0] == "fish":
				return root.GenFishCompletion(a.stdout, !bare)
			case args[0] == "zsh" && bare:
				return root.GenZshCompletionNoDesc(a.stdout)
			case args[0] == "zsh":
				return root.GenZshCompletion(a.stdout)
			case bare:
				return root.GenPowerShellCompletion(a.stdout)
			}
			return root.GenPowerShellCompletionWithDesc(a.stdout)
		},
	}
	cmd.Flags().BoolVar(&bare, "no-descriptions", false, "complete words without saying what they mean")
	return cmd
}

// describeFlags makes the descriptions of flags fit for the shell: it shows them
// as they are, with the quotes that tell help what a flag takes.
func describeFlags(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
}
