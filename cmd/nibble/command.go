package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes.
const (
	exitOK          = 0
	exitFindings    = 1   // verify has something to report
	exitUsage       = 2   // the command line or the configuration is wrong
	exitFailed      = 3   // a file cannot be opened, or a tensor not decoded
	exitInterrupted = 130 // what shells expect after SIGINT
)

// usageError is an error of the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errTold ends a verb that has already told the user what failed.
var errTold = errors.New("some tensors failed")

// errFindings ends verify when it has printed findings.
var errFindings = errors.New("findings")

// app is what the verbs share: where they print to, and the environment.
type app struct {
	stdout  io.Writer
	stderr  io.Writer
	talk    io.Writer // prints above a bar on stderr while there is one; else nil
	environ []string
}

// say tells people something, each line with the command's name before it.
func (a *app) say(format string, args ...any) {
	to := a.talk
	if to == nil {
		to = a.stderr
	}
	for _, line := range strings.Split(fmt.Sprintf(format, args...), "\n") {
		fmt.Fprintf(to, "nibble: %s\n", seen(line))
	}
}

// printJSON prints v as one document on one line. Names are as they are in the
// file: what HTML would have escaped is not.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, a *app) (code int) {
	defer func() {
		if r := recover(); r != nil {
			// A bug of ours. Go's own exit code for it means wrong usage here.
			a.say("this is a bug: %v\n%s", r, debug.Stack())
			code = exitFailed
		}
	}()
	root := newRoot(a)
	root.SetArgs(args)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		describeFlags(root)
	}
	help := &sticky{w: a.stdout}
	root.SetOut(help)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.Is(err, errTold):
		return exitFailed
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		a.say("interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		a.say("%v", err)
		return exitUsage
	}
	a.say("%v", err)
	return exitFailed
}

// sticky remembers that a write failed, for a library that does not look.
type sticky struct {
	w   io.Writer
	err error
}

func (s *sticky) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "nibble",
		Short: "open quantized checkpoints and decode them within a byte budget",
		Long: "nibble opens a checkpoint that bitsandbytes quantized, or a plain one, and decodes\n" +
			"its tensors lazily, block-parallel, within a byte budget.\n\n" +
			"PATH is a container file, an index, or a directory of either.",
		Version:       version(),
		Args:          noVerb,
		SilenceErrors: true,
		// How many letters a misspelt verb may be off.
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		RunE:                       func(*cobra.Command, []string) error { return nil }, // noVerb has refused all arguments
	}
	root.SetErr(a.stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		layersCommand(a), inspectCommand(a), sumCommand(a), catCommand(a), verifyCommand(a),
		convertCommand(a), configCommand(a), benchCommand(a), versionCommand(a), completionCommand(a),
	)
	speak(root)
	return root
}

// flagError is what is wrong with a flag: in the words of package settings, if
// it is the value.
func flagError(cmd *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return usagef("%w (%s --help lists the flags)", err, cmd.CommandPath())
	}
	flag := bad.GetFlag()
	var wrong string
	switch kind := flag.Value.Type(); {
	case errors.Is(err, strconv.ErrRange):
		wrong = " is out of range"
	case kind == "int":
		wrong = " is not a whole number"
	case kind == "float64":
		wrong = " is not a number"
	case kind == "bool":
		wrong = " is neither true nor false"
	default:
		wrong = ", " + bad.Unwrap().Error() // our own: what it wants
	}
	return usagef("--%s: %q%s", flag.Name, bad.GetValue(), wrong)
}

// noVerb refuses a command line without a verb of nibble.
func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no command given: nibble help lists them")
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && args[0] != "" { // every name begins with ""
		return usagef("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("unknown command %q: nibble help lists them", args[0])
}

// usageArgs makes what check complains about an error of use, and an empty
// argument where a verb wants a path: a variable of the shell that is not set.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) != nil {
			return usagef("want: %s", cmd.UseLine())
		}
		if len(args) > 0 && args[0] == "" && strings.Contains(cmd.Use, " PATH") {
			return usagef("PATH is empty: want: %s", cmd.UseLine())
		}
		return nil
	}
}
