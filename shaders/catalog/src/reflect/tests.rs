//! Modules built by hand, one per rule of the kernel convention.
