package mmap

// NetworkName is tested by number: no test machine has all these file systems.
var NetworkName = networkName
