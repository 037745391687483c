// Package archtest holds the map of the house, which room may import which,
// and a test that walks the tree to see that every file keeps to it.
package archtest
