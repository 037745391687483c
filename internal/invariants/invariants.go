//go:build invariants

// Package invariants says whether this build checks itself. Under
// `-tags invariants` freed buffers are poisoned, leases carry the stack that
// took them, leased bytes are hashed, and broken accounts panic. Enabled is a
// constant, so in other builds the checks compile to nothing.
package invariants

// Enabled is true in builds with -tags invariants.
const Enabled = true
