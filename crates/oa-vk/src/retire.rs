//! Things that may die only when the device has passed a tick.
//!
//! A submission in flight holds its recording, and through it every buffer, pipeline and pool that
//! it uses; this list is what makes dropping a handle right after a submit harmless (H1).

use crate::timeline::Tick;
use std::collections::VecDeque;

/// Submissions in flight, oldest first.
pub(crate) struct Flight<T> {
    entries: VecDeque<(Tick, T)>,
}

/// What has landed; dropping it may free memory, so that is done after locks are released.
pub(crate) type Landed<T> = [Option<T>; MOST_IN_FLIGHT];

/// Submissions that may be in flight at once: one runs, one waits, one is being prepared.
pub(crate) const MOST_IN_FLIGHT: usize = 3;

impl<T> Flight<T> {
    /// An empty list that never allocates again.
    pub(crate) fn new() -> Flight<T> {
        Flight { entries: VecDeque::with_capacity(MOST_IN_FLIGHT) }
    }

    /// Adds a submission.
    pub(crate) fn push(&mut self, tick: Tick, value: T) {
        assert!(!self.is_full(), "H1: a submission beyond the most in flight");
        let ordered = self.entries.back().is_none_or(|(last, _)| *last < tick);
        assert!(ordered, "H1: ticks rise");
        self.entries.push_back((tick, value));
    }

    /// Takes out what the device has passed.
    pub(crate) fn land(&mut self, reached: Tick) -> Landed<T> {
        let mut landed: Landed<T> = [const { None }; MOST_IN_FLIGHT];
        for slot in &mut landed {
            if self.entries.front().is_none_or(|(tick, _)| *tick > reached) {
                break;
            }
            *slot = self.entries.pop_front().map(|(_, value)| value);
        }
        landed
    }

    /// The submission that has been in flight longest.
    pub(crate) fn oldest(&self) -> Option<&(Tick, T)> {
        self.entries.front()
    }

    /// The first submission that the device has not passed.
    pub(crate) fn running(&self, reached: Tick) -> Option<&(Tick, T)> {
        self.entries.iter().find(|(tick, _)| *tick > reached)
    }

    /// True when another submission must wait.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= MOST_IN_FLIGHT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn values_live_until_their_tick_is_reached() {
        let mut flight = Flight::new();
        let value = Rc::new(());
        for tick in 1..=3 {
            flight.push(Tick(tick), Rc::clone(&value));
        }
        assert!(flight.is_full());
        assert_eq!(Rc::strong_count(&value), 4);
        drop(flight.land(Tick(0)));
        assert_eq!(Rc::strong_count(&value), 4);
        assert_eq!(flight.running(Tick(1)).map(|(tick, _)| *tick), Some(Tick(2)));
        drop(flight.land(Tick(2)));
        assert_eq!(Rc::strong_count(&value), 2);
        assert_eq!(flight.oldest().map(|(tick, _)| *tick), Some(Tick(3)));
        drop(flight.land(Tick(9)));
        assert!(flight.oldest().is_none() && flight.running(Tick(9)).is_none());
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn the_list_never_grows() {
        let mut flight = Flight::new();
        let capacity = flight.entries.capacity();
        for tick in 1..1000 {
            if flight.is_full() {
                flight.land(Tick(tick - 1));
            }
            flight.push(Tick(tick), tick);
        }
        assert_eq!(flight.entries.capacity(), capacity);
    }
}
