//! Pooling, and the step from images to vectors. They have no parameters.

use crate::error::Result;
use oa_graph::Tensor;
use oa_graph::ops::image::Pooling;

/// The largest element of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2d {
    /// Window, stride and padding.
    pub window: Pooling,
}

impl MaxPool2d {
    /// Square windows of `size` pixels a side, side by side.
    pub fn square(size: usize) -> MaxPool2d {
        MaxPool2d { window: Pooling::square(size) }
    }

    /// Applies the layer to images.
    ///
    /// # Errors
    ///
    /// When the window does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.max_pool2d(self.window)?)
    }
}

/// The mean of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvgPool2d {
    /// Window, stride and padding.
    pub window: Pooling,
    /// Whether padding counts as zeros.
    pub count_include_pad: bool,
}

impl AvgPool2d {
    /// Square windows of `size` pixels a side, side by side.
    pub fn square(size: usize) -> AvgPool2d {
        AvgPool2d { window: Pooling::square(size), count_include_pad: true }
    }

    /// Applies the layer to images.
    ///
    /// # Errors
    ///
    /// When the window does not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.avg_pool2d(self.window, self.count_include_pad)?)
    }
}

/// The mean of each channel: `[B, C, H, W]` to `[B, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GlobalAvgPool2d {}

impl GlobalAvgPool2d {
    /// Applies the layer to images of any size.
    ///
    /// # Errors
    ///
    /// When the value is no batch of images.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.global_avg_pool2d()?)
    }
}

/// Everything of an example in one row: `[B, ..]` to `[B, elements]`. No work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flatten {}

impl Flatten {
    /// Applies the layer.
    ///
    /// # Errors
    ///
    /// When the value has no dimension: a scalar is no batch.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let shape = x.shape();
        let batch = shape.dims().first().copied().unwrap_or(0);
        Ok(x.reshape([batch, shape.elems().checked_div(batch).unwrap_or(0)])?)
    }
}
