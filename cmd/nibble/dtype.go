package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nibble/tensor"
)

// dtypeFlag is the value of --dtype.
type dtypeFlag struct{ tensor.DType }

// dtypeNames are what --dtype takes.
var dtypeNames = []string{"stored", "f32", "f16", "bf16"}

func addDTypeFlag(cmd *cobra.Command, d *dtypeFlag) {
	cmd.Flags().Var(d, "dtype", "decode float and quantized tensors to f32, f16, bf16, or stored for what each restores to")
	complete(cmd, "dtype", dtypeNames)
}

// complete offers words for the value of a flag to the shell.
func complete(cmd *cobra.Command, flag string, words []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // a flag that was not added, or twice
	}
}

// Set implements pflag.Value.
func (d *dtypeFlag) Set(s string) error {
	if !slices.Contains(dtypeNames, s) {
		return fmt.Errorf("want one of %s", strings.Join(dtypeNames, ", "))
	}
	d.DType, _ = tensor.Parse(s)
	return nil
}

// Type implements pflag.Value.
func (d *dtypeFlag) Type() string { return "dtype" }

// wordFlag is the value of a flag that takes one of a few words.
type wordFlag struct {
	value string
	words []string
}

func (w *wordFlag) String() string { return w.value }

// Type implements pflag.Value.
func (w *wordFlag) Type() string { return "word" }

// Set implements pflag.Value.
func (w *wordFlag) Set(s string) error {
	if !slices.Contains(w.words, s) {
		return fmt.Errorf("want one of %s", strings.Join(w.words, ", "))
	}
	w.value = s
	return nil
}

// keptNote counts tensors that do not decode to the dtype asked for.
type keptNote struct {
	want  tensor.DType
	count int64
	first string
}

// add notes that the tensor came as got.
func (k *keptNote) add(name string, got tensor.DType) {
	if k.want == tensor.Stored || got == k.want {
		return
	}
	if k.count++; k.count == 1 {
		k.first = fmt.Sprintf("%s is %s", quoteName(name), got)
	}
}

// tell says how many tensors kept their own dtype.
func (k *keptNote) tell(a *app) {
	switch k.count {
	case 0:
	case 1:
		a.say("1 tensor does not decode to %s: %s", k.want, k.first)
	default:
		a.say("%d tensors do not decode to %s and keep their own dtype: %s, …", k.count, k.want, k.first)
	}
}
