//! A table of vectors, looked up by id.

use crate::error::Result;
use crate::init::Init;
use crate::param::{Parameter, Scope};
use oa_graph::Tensor;

/// Rows of a table `[ids, width]`.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// The table.
    pub table: Parameter,
}

impl Embedding {
    /// A table of the given name.
    ///
    /// # Errors
    ///
    /// When the name is taken.
    pub fn new(
        scope: &mut Scope<'_>,
        name: &str,
        [ids, width]: [usize; 2],
        init: Init,
    ) -> Result<Embedding> {
        Ok(Embedding { table: scope.edge().declare(name, [ids, width], init)? })
    }

    /// The rows of some ids (u32, at most three dimensions): `[..]` becomes `[.., width]`.
    ///
    /// # Errors
    ///
    /// When the ids are no u32 or have too many dimensions.
    #[track_caller]
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        Ok(self.table.value().embedding(ids)?)
    }
}
