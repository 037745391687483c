package settings

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// What the store has against a value begins with the name of its own field,
// which is not what users wrote. For each setting that must be replaced.
func TestRefusedNamesTheSource(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, f := range fields {
		variable := prefix + strings.ToUpper(strings.ReplaceAll(f.name, ".", "_"))
		_, err := Load(pflag.NewFlagSet("", pflag.ContinueOnError), []string{variable + "=-7"})
		if err == nil || !strings.HasPrefix(err.Error(), variable+": ") || strings.Contains(err.Error(), f.name) {
			t.Errorf("%s: %v", variable, err)
		}
	}
}
