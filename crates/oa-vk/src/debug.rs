//! Where validation messages go: to `tracing`, and into a sink that tests read.
//!
//! A test that asserts an empty sink fails on the first misuse of Vulkan, whatever else it checks.

use std::sync::Mutex;

/// How bad a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Probably wrong.
    Warning,
    /// Wrong.
    Error,
}

/// Messages of the validation layer, oldest first.
#[derive(Default)]
pub(crate) struct Sink {
    messages: Mutex<Vec<String>>,
}

impl Sink {
    /// Messages kept; a loop that repeats one mistake must not fill the memory.
    const MOST: usize = 1000;

    /// Takes a message. Only those that count are kept: the loader's own remarks do not.
    pub(crate) fn receive(&self, severity: Severity, counts: bool, id: &str, text: &str) {
        // What the layer says of its own settings is no fault of ours.
        let counts = counts && !id.contains("-Setting") && !id.ends_with("-SETTINGS");
        let text = if text.contains(id) { text.to_owned() } else { format!("{id}: {text}") };
        match severity {
            Severity::Error => tracing::error!(target: "oa_vk::validation", "{text}"),
            Severity::Warning if counts => tracing::warn!(target: "oa_vk::validation", "{text}"),
            Severity::Warning => tracing::debug!(target: "oa_vk::validation", "{text}"),
        }
        if counts {
            let mut messages = self.messages.lock().expect("no panic while the sink is held");
            if messages.len() < Sink::MOST {
                messages.push(text);
            }
        }
    }

    /// Takes the messages out.
    pub(crate) fn drain(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock().expect("no panic while the sink is held"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sink_keeps_what_counts_and_is_bounded() {
        let sink = Sink::default();
        sink.receive(Severity::Warning, false, "", "the loader skipped a driver");
        sink.receive(Severity::Warning, true, "WARNING-Setting-Limit-Adjusted", "forcing");
        sink.receive(Severity::Error, true, "SYNC-1", "first");
        for _ in 0..2 * Sink::MOST {
            sink.receive(Severity::Warning, true, "SYNC-2", "[SYNC-2] again");
        }
        let messages = sink.drain();
        assert_eq!(messages.len(), Sink::MOST);
        assert_eq!(messages[..2], ["SYNC-1: first", "[SYNC-2] again"]);
        assert!(sink.drain().is_empty());
    }
}
