//! Nothing: this package names others whose C the benches compile.
