//! How a window moves over an image, and what is wrong with one that cannot.
//!
//! Attributes of image ops are pairs of 16-bit numbers, rows in the low half. The faults carry the
//! sizes, which a shape alone does not say.

/// Geometry of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Pixels that the kernel moves down and right between two results.
    pub stride: [usize; 2],
    /// Rows and columns of zeros on each side of the image.
    pub padding: [usize; 2],
    /// Pixels between two elements of the kernel: 1 for a dense kernel.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other; as many as channels is a depthwise
    /// convolution.
    pub groups: usize,
}

impl Default for Convolution {
    /// A dense kernel that moves by one pixel over an image without padding, in one group.
    fn default() -> Convolution {
        Convolution { stride: [1; 2], padding: [0; 2], dilation: [1; 2], groups: 1 }
    }
}

/// Geometry of a pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Rows and columns of the window.
    pub kernel: [usize; 2],
    /// Pixels that the window moves down and right between two results.
    pub stride: [usize; 2],
    /// Rows and columns around the image, at most half a window.
    pub padding: [usize; 2],
}

impl Pooling {
    /// Square windows of `size` pixels a side that neither overlap nor leave a gap.
    pub fn square(size: usize) -> Pooling {
        Pooling { kernel: [size; 2], stride: [size; 2], padding: [0; 2] }
    }
}

/// Why a window does not fit an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowFault {
    /// The value is no batch of images.
    #[error("the image has {rank} dimensions, it needs batch, channels, height and width")]
    Rank {
        /// Dimensions that it has.
        rank: usize,
    },
    /// A size that must be positive is 0.
    #[error("the {what} is {rows} x {cols}; both must be at least 1")]
    Zero {
        /// Which size.
        what: &'static str,
        /// Along the rows.
        rows: usize,
        /// Along the columns.
        cols: usize,
    },
    /// A size does not fit in 16 bits.
    #[error("the {what} is {rows} x {cols}; both must be at most 65535")]
    Large {
        /// Which size.
        what: &'static str,
        /// Along the rows.
        rows: usize,
        /// Along the columns.
        cols: usize,
    },
    /// The kernel does not fit into the image.
    #[error(
        "the kernel spans {span_rows} x {span_cols} pixels, the padded image has {rows} x {cols}"
    )]
    Kernel {
        /// Rows from the first to the last of the kernel, dilated.
        span_rows: usize,
        /// Columns from the first to the last of the kernel, dilated.
        span_cols: usize,
        /// Rows of the image and its padding.
        rows: usize,
        /// Columns of the image and its padding.
        cols: usize,
    },
    /// The channels cannot be shared evenly.
    #[error("{groups} groups cannot share {channels} channels and {results} results evenly")]
    Groups {
        /// Groups asked for.
        groups: usize,
        /// Channels of the image.
        channels: usize,
        /// Channels of the result.
        results: usize,
    },
    /// The kernel was made for another number of channels.
    #[error("the kernel reads {kernel} channels, a group of the image has {image}")]
    Channels {
        /// Channels that the kernel reads.
        kernel: usize,
        /// Channels of a group of the image.
        image: usize,
    },
    /// A pooling window might see padding only.
    #[error(
        "a padding of {rows} x {cols} is more than half of a window of {kernel_rows} x {kernel_cols}"
    )]
    Padding {
        /// Rows of padding.
        rows: usize,
        /// Columns of padding.
        cols: usize,
        /// Rows of the window.
        kernel_rows: usize,
        /// Columns of the window.
        kernel_cols: usize,
    },
    /// A transposed convolution has nothing to say about some pixels, or leaves none.
    #[error(
        "an image of {rows} x {cols} does not become {image_rows} x {image_cols} pixels: the padding takes them all, or the output padding is not below the stride"
    )]
    Transposed {
        /// Rows of the value.
        rows: usize,
        /// Columns of the value.
        cols: usize,
        /// Rows of the image it would become.
        image_rows: isize,
        /// Columns of the image it would become.
        image_cols: isize,
    },
    /// One result is a sum of more terms than the device adds in one dispatch.
    #[error("each result is a sum of {terms} terms, this driver adds at most {most}")]
    Sum {
        /// Terms of a sum.
        terms: usize,
        /// Terms that one dispatch adds.
        most: usize,
    },
    /// A batch has no variance.
    #[error("a variance needs at least two values of a channel, the batch has {values}")]
    Variance {
        /// Values of a channel in the batch.
        values: usize,
    },
}

/// Two 16-bit numbers in one attribute.
pub(super) fn pair([rows, cols]: [usize; 2]) -> u32 {
    rows as u32 | (cols as u32) << 16
}

/// The inverse of [`pair`].
pub(super) fn unpair(word: u32) -> [usize; 2] {
    [(word & 0xFFFF) as usize, (word >> 16) as usize]
}

/// Pixels from the first to the last of a kernel of `kernel` elements.
pub(super) fn span(kernel: usize, dilation: usize) -> usize {
    dilation * (kernel - 1) + 1
}

/// Places of a window that spans `span` pixels on an image of `pixels`; `None` without any.
pub(super) fn places(pixels: usize, span: usize, stride: usize, padding: usize) -> Option<usize> {
    let room = (pixels + 2 * padding).checked_sub(span)?;
    Some(room.checked_div(stride)? + 1)
}

/// Refuses sizes of 0 or above 16 bits.
pub(super) fn check_sizes(sizes: &[(&'static str, [usize; 2])]) -> Result<(), WindowFault> {
    for &(what, [rows, cols]) in sizes {
        if (rows == 0 || cols == 0) && what != "padding" {
            return Err(WindowFault::Zero { what, rows, cols });
        }
        if rows.max(cols) > 0xFFFF {
            return Err(WindowFault::Large { what, rows, cols });
        }
    }
    Ok(())
}

/// Refuses a kernel that is larger than the padded image.
pub(super) fn check_kernel(
    image: [usize; 2],
    kernel: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
) -> Result<(), WindowFault> {
    let [span_rows, span_cols] = [0, 1].map(|axis| span(kernel[axis], dilation[axis]));
    let [rows, cols] = [0, 1].map(|axis| image[axis] + 2 * padding[axis]);
    match span_rows > rows || span_cols > cols {
        true => Err(WindowFault::Kernel { span_rows, span_cols, rows, cols }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_kept() {
        for both in [[0, 0], [1, 2], [65_535, 3], [7, 65_535]] {
            assert_eq!(unpair(pair(both)), both);
        }
    }

    #[test]
    fn windows_are_counted() {
        assert_eq!(places(28, 3, 1, 1), Some(28));
        assert_eq!(places(28, 3, 2, 1), Some(14));
        assert_eq!(places(7, span(3, 2), 1, 0), Some(3));
        assert_eq!(places(2, 3, 1, 0), None);
        assert_eq!(places(2, 2, 0, 0), None);
    }
}
