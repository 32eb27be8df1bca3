//! Services that a layer above keeps with a graph.
//!
//! A layer above may have to find its own things again from nothing but a value (the gradient tape
//! finds the parameters that a loss depends on). They live with the graph, so there is no global
//! table, and two engines never see each other's. The graph itself looks at none of them.

use crate::graph::Graph;
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// At most one service per type.
#[derive(Default)]
pub(crate) struct Extensions {
    held: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Graph {
    /// The graph's service of type `T`, made with `Default` the first time it is asked for.
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut held = self.extensions.held.lock().expect("no panic while the services are held");
        let service = held.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        service.clone().downcast().expect("a service is kept under its own type")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_graph_has_one_service_of_a_type() {
        let (one, two) = (Graph::detached(), Graph::detached());
        one.extension::<AtomicU32>().store(7, Ordering::Relaxed);
        assert_eq!(one.extension::<AtomicU32>().load(Ordering::Relaxed), 7);
        assert_eq!(two.extension::<AtomicU32>().load(Ordering::Relaxed), 0);
    }
}
