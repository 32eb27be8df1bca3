//! Pictures of a run: the loss over its steps, as an SVG file.
//!
//! One function, because a training program wants a picture and not a plotting library. It never
//! fails a run: what it returns is for the caller to report.

use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

/// A line of the picture: step numbers and losses in nats.
pub type Points = Vec<(f64, f64)>;

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not one finite loss.
    #[error("there is no loss to draw")]
    Empty,
    /// The drawing library refused.
    #[error("the picture could not be drawn: {0}")]
    Draw(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file could not be written.
    #[error("the picture could not be written: {0}")]
    Write(#[from] std::io::Error),
}

/// Draws training and validation losses into an SVG file. `title` stands above them. The raw
/// training loss is drawn pale and a running mean of it strong.
///
/// # Errors
///
/// When there is nothing to draw or the file cannot be written.
pub fn loss_svg(
    path: impl AsRef<Path>,
    title: &str,
    training: &[(f64, f64)],
    validation: &[(f64, f64)],
) -> Result<(), Error> {
    let svg = draw(title, training, validation)?;
    Ok(std::fs::write(path, svg)?)
}

fn draw(title: &str, training: &[(f64, f64)], validation: &[(f64, f64)]) -> Result<String, Error> {
    let finite = |points: &[(f64, f64)]| -> Points {
        points.iter().copied().filter(|(_, loss)| loss.is_finite()).collect()
    };
    let (training, validation) = (finite(training), finite(validation));
    let (steps, losses) = ranges(&training, &validation).ok_or(Error::Empty)?;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (900, 540)).into_drawing_area();
        render(&area, title, (steps, losses), &training, &validation)
            .map_err(|error| Error::Draw(Box::new(error)))?;
    }
    Ok(svg)
}

type DrawError = DrawingAreaErrorKind<std::io::Error>;

fn render(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    (steps, losses): (Range<f64>, Range<f64>),
    training: &[(f64, f64)],
    validation: &[(f64, f64)],
) -> Result<(), DrawError> {
    let (pale, strong, held) =
        (RGBColor(198, 214, 235), RGBColor(31, 93, 168), RGBColor(200, 80, 20));
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(steps, losses)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_label_formatter(&|step| format!("{step:.0}"))
        .y_label_formatter(&|loss| format!("{loss:.2}"))
        .x_desc("step")
        .y_desc("loss, nats")
        .draw()?;
    chart.draw_series(LineSeries::new(training.iter().copied(), pale))?;
    if !training.is_empty() {
        let mean = running_mean(training);
        chart
            .draw_series(LineSeries::new(mean, strong.stroke_width(2)))?
            .label("training")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], strong.stroke_width(2)));
    }
    if !validation.is_empty() {
        chart
            .draw_series(LineSeries::new(validation.iter().copied(), held.stroke_width(2)))?
            .label("validation")
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], held.stroke_width(2)));
        chart.draw_series(validation.iter().map(|&at| Circle::new(at, 3, held.filled())))?;
    }
    chart.configure_series_labels().background_style(WHITE).border_style(pale).draw()?;
    area.present()
}

/// Steps and losses that the axes span; `None` without a point.
fn ranges(training: &[(f64, f64)], validation: &[(f64, f64)]) -> Option<(Range<f64>, Range<f64>)> {
    let mut points = training.iter().chain(validation).copied();
    let (step, loss) = points.next()?;
    let (mut steps, mut losses) = (step..step, loss..loss);
    for (step, loss) in points {
        steps = steps.start.min(step)..steps.end.max(step);
        losses = losses.start.min(loss)..losses.end.max(loss);
    }
    let room = ((losses.end - losses.start) * 0.05).max(1.0e-3);
    let end = steps.end.max(steps.start + 1.0);
    Some((steps.start..end, losses.start - room..losses.end + room))
}

/// An exponential running mean over about a fortieth of the points, without the early bias.
fn running_mean(points: &[(f64, f64)]) -> Points {
    let keep = 1.0 - 1.0 / (points.len() as f64 / 40.0).max(1.0);
    let (mut sum, mut weight) = (0.0, 0.0);
    let mean = points.iter().map(|&(step, loss)| {
        sum = keep * sum + loss;
        weight = keep * weight + 1.0;
        (step, sum / weight)
    });
    mean.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_both_lines_and_its_words() {
        let training: Points = (0..200).map(|s| (f64::from(s), 5.5 / f64::from(s + 1))).collect();
        let svg = draw("a run", &training, &[(99.0, 1.0), (199.0, f64::NAN)]).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for word in ["a run", "loss, nats", "training", "validation"] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(svg.matches("<circle").count(), 1, "a loss that is no number is left out");
    }

    #[test]
    fn degenerate_runs_are_drawn_or_refused() {
        assert!(matches!(draw("", &[], &[(1.0, f64::INFINITY)]), Err(Error::Empty)));
        assert!(draw("", &[(5.0, 2.0)], &[]).is_ok());
    }

    #[test]
    fn the_mean_follows_a_constant_from_its_first_point() {
        let flat: Points = (0..100).map(|step| (f64::from(step), 2.0)).collect();
        assert!(running_mean(&flat).iter().all(|(_, loss)| (loss - 2.0).abs() < 1.0e-12));
    }
}
