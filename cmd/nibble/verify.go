package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"nibble/store"
)

func verifyCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify PATH",
		Short: "report everything that breaks or bends a rule",
		Long: "verify reads headers, quantization states and scales, and reports everything that\n" +
			"breaks a rule (error) or bends one (warning), with the rule's id, where it is and\n" +
			"what to do about it. It exits with 1 when there is anything to report, and with 3\n" +
			"only when bytes cannot be read.",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := a.options(cmd, nil)
			if err != nil {
				return err
			}
			found, err := store.Verify(cmd.Context(), args[0], opts...)
			if err != nil {
				return err
			}
			if err := a.printFindings(found, asJSON); err != nil {
				return err
			}
			if len(found) > 0 {
				return errFindings
			}
			return nil
		},
	}
	addOpenFlags(cmd.Flags(), readSettings)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// findingRow is a finding in JSON.
type findingRow struct {
	Rule     string         `json:"rule"`
	Severity store.Severity `json:"severity"`
	File     string         `json:"file,omitempty"`
	Tensor   string         `json:"tensor"`
	Offset   *int64         `json:"offset"` // nil when no single byte is meant
	Message  string         `json:"message"`
}

func (a *app) printFindings(found []store.Finding, asJSON bool) error {
	rows := make([]findingRow, len(found))
	for i, f := range found {
		rows[i] = findingRow{f.Rule, f.Severity, f.File, f.Tensor, nil, f.Message}
		if f.Offset >= 0 {
			rows[i].Offset = &f.Offset
		}
	}
	if asJSON {
		return a.printJSON(map[string][]findingRow{"findings": rows})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintln(a.stdout, r.text()); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		a.say("no findings")
	} else {
		a.say("%s", countText(len(rows), "finding"))
	}
	return nil
}

// text is the finding in one line.
func (r *findingRow) text() string {
	line := fmt.Sprintf("%s  %s  ", r.Rule, r.Severity)
	if r.File != "" {
		line += quoteName(r.File) + ": "
	}
	if r.Tensor != "" {
		line += quoteName(r.Tensor) + ": "
	}
	line += seen(r.Message)
	if r.Offset != nil {
		line += fmt.Sprintf(" (at byte %d)", *r.Offset)
	}
	return line
}
