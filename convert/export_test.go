package convert

// SetRename replaces what puts files in place until restore is called.
func SetRename(f func(from, to string) error) (restore func()) {
	old := rename
	rename = f
	return func() { rename = old }
}

// RewriteConfig is rewriteConfig.
var RewriteConfig = rewriteConfig
