//! Part of OA.
