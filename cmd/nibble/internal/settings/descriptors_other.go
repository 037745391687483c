//go:build !linux && !darwin

package settings

// defaultDescriptors leaves the number to the library.
func defaultDescriptors() int { return 0 }
