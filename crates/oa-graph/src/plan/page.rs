//! An execution report as one HTML page with pictures.
//!
//! The page is self-contained: no script, no style and no picture from elsewhere, so that it can be
//! kept beside a measurement and read years later.

use super::report::{ExecutionReport, StepReport};
use std::fmt::{self, Write};

/// Width of the pictures, in their own units.
const WIDTH: f64 = 1000.0;
/// Height of the picture of the arena.
const ARENA_HEIGHT: f64 = 260.0;

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;margin:2em;color:#222;background:#fff}\
table{border-collapse:collapse;width:100%}td,th{padding:2px 8px;border-bottom:1px solid #ddd;\
text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}\
code{font-size:12px}svg{width:100%;background:#f6f6f6;border:1px solid #ddd}\
.b{color:#a33}.q{color:#777}h2{margin-top:2em}";

/// The page of a report.
pub(super) fn page(report: &ExecutionReport) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(report, &mut out);
    out
}

fn write_page(report: &ExecutionReport, out: &mut String) -> fmt::Result {
    write!(out, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">")?;
    write!(out, "<title>Execution plan on {}</title>", Escaped(&report.device))?;
    writeln!(out, "<style>{STYLE}</style></head><body><h1>Execution plan</h1>")?;
    summary(report, out)?;
    timeline(report, out)?;
    arena(report, out)?;
    steps(report, out)?;
    writeln!(out, "</body></html>")
}

fn summary(report: &ExecutionReport, out: &mut String) -> fmt::Result {
    writeln!(out, "<p>{}, {}<br>", Escaped(&report.device), Escaped(&report.driver))?;
    writeln!(out, "kernels <code>{}</code></p>", Escaped(&report.kernels_lock))?;
    write!(
        out,
        "<p>{} steps, {} dispatches, {} barriers; arena {} bytes, where {} are live at once; inputs \
         {} bytes a submission",
        report.steps.len(),
        report.dispatches(),
        report.barriers(),
        report.arena_bytes,
        report.lower_bound_bytes,
        report.inputs_bytes,
    )?;
    match report.gpu_ns {
        Some(ns) => writeln!(
            out,
            "; {:.1} µs of GPU time, median of {} replays.</p>",
            ns / 1e3,
            report.turns
        ),
        None => writeln!(out, "; not timed.</p>"),
    }
}

/// A bar a step, as wide as its GPU time; without times, all alike.
fn timeline(report: &ExecutionReport, out: &mut String) -> fmt::Result {
    let length = |step: &StepReport| step.gpu_ns.unwrap_or(1.0).max(0.0);
    let total: f64 = report.steps.iter().map(length).sum::<f64>().max(f64::MIN_POSITIVE);
    let title = if report.gpu_ns.is_some() { "GPU time of each step" } else { "Steps in order" };
    writeln!(out, "<h2>{title}</h2><svg viewBox=\"0 0 {WIDTH} 46\" preserveAspectRatio=\"none\">")?;
    let mut x = 0.0;
    for (index, step) in report.steps.iter().enumerate() {
        let width = length(step) / total * WIDTH;
        let colour = hue(&step.op);
        write!(out, "<rect x=\"{x:.2}\" y=\"6\" width=\"{width:.2}\" height=\"34\" ")?;
        write!(out, "fill=\"hsl({colour} 55% 62%)\" stroke=\"#fff\" stroke-width=\"0.4\">")?;
        write!(out, "<title>{index}: {} {}", Escaped(&step.op), Escaped(&step.variant))?;
        writeln!(out, "{}</title></rect>", Time(step.gpu_ns))?;
        if step.barrier.is_some() {
            writeln!(
                out,
                "<rect x=\"{x:.2}\" y=\"0\" width=\"0.8\" height=\"46\" fill=\"#a33\"/>"
            )?;
        }
        x += width;
    }
    writeln!(out, "</svg><p class=\"q\">A red line is a barrier; colours are ops.</p>")
}

/// A rectangle a transient value: nodes to the right, arena offsets upwards.
fn arena(report: &ExecutionReport, out: &mut String) -> fmt::Result {
    let nodes = report.values.iter().map(|value| value.death).max().unwrap_or(0).max(1);
    let bytes = report.arena_bytes.max(1);
    writeln!(out, "<h2>Arena over time</h2>")?;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {ARENA_HEIGHT}\" preserveAspectRatio=\"none\">")?;
    for (index, value) in report.values.iter().enumerate() {
        let x = |node: u32| f64::from(node) / f64::from(nodes) * WIDTH;
        let y = |offset: u64| offset as f64 / bytes as f64 * ARENA_HEIGHT;
        let (left, width) = (x(value.birth), x(value.death) - x(value.birth));
        let (height, top) = (y(value.len_bytes), y(value.offset_bytes));
        let top = ARENA_HEIGHT - top - height;
        write!(out, "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" ")?;
        write!(out, "height=\"{height:.2}\" fill=\"hsl({} 50% 70%)\" ", index * 47 % 360)?;
        write!(out, "stroke=\"#fff\" stroke-width=\"0.5\"><title>{} bytes ", value.len_bytes)?;
        write!(out, "at {}, nodes {} to {}", value.offset_bytes, value.birth, value.death)?;
        writeln!(out, "</title></rect>")?;
    }
    writeln!(out, "</svg><p class=\"q\">Nodes to the right, offsets upwards.</p>")
}

fn steps(report: &ExecutionReport, out: &mut String) -> fmt::Result {
    writeln!(out, "<h2>Steps</h2><table><tr><th>#<th>op<th>kernel<th>groups<th>reads, bytes")?;
    writeln!(out, "<th>writes, bytes<th>GPU time<th>recorded at, barrier, refused kernels</tr>")?;
    for (index, step) in report.steps.iter().enumerate() {
        let [x, y, z] = step.groups;
        write!(out, "<tr><td class=\"n\">{index}<td>{}<td>", Escaped(&step.op))?;
        write!(out, "<code title=\"{}\">", Escaped(&step.spirv))?;
        write!(out, "{}</code><td>{x}×{y}×{z}", Escaped(&step.variant))?;
        write!(out, "<td class=\"n\">{}<td class=\"n\">", step.read_bytes)?;
        write!(out, "{}<td class=\"n\">{}<td>", step.written_bytes, Time(step.gpu_ns))?;
        write!(out, "<code>{}</code>", Escaped(&step.site))?;
        if let Some(barrier) = &step.barrier {
            write!(out, "<br><span class=\"b\">{}</span>", Escaped(barrier))?;
        }
        for refused in &step.refused {
            write!(out, "<br><span class=\"q\">{}</span>", Escaped(refused))?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table>")
}

/// A colour angle that an op keeps from page to page.
fn hue(op: &str) -> u32 {
    op.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 360
}

/// Text without a meaning to HTML.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            other => f.write_char(other),
        })
    }
}

/// A GPU time, or nothing.
struct Time(Option<f64>);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |ns| write!(f, " {:.1} µs", ns / 1e3))
    }
}
