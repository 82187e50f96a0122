//! The timeline as PNG: a canvas of pixels.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::FONT_6X10;
use embedded_graphics::pixelcolor::Rgb888;
use embedded_graphics::prelude::{
    DrawTarget, Drawable, OriginDimensions, Pixel, Point, RgbColor, Size,
};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle};
use embedded_graphics::text::{Alignment, Text};

use super::picture::{Canvas, draw, size};
use super::{Colour, Layout};
use crate::svg::Anchor;

/// Pictures have no more pixels.
const MOST_PIXELS: usize = 1 << 27;

struct Pixels {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    fn set(&mut self, x: i64, y: i64, colour: [u8; 3]) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else {
            return;
        };
        if x < self.width && y < self.height {
            let at = (y * self.width + x) * 3;
            self.bytes[at..at + 3].copy_from_slice(&colour);
        }
    }

    fn fill(
        &mut self,
        [x, y, w, h]: [f64; 4],
        mut colour: impl FnMut(i64, i64) -> Option<[u8; 3]>,
    ) {
        // What is there is seen.
        let (left, right) = (
            x.round() as i64,
            ((x + w).round() as i64).max(x.round() as i64 + 1),
        );
        let (top, bottom) = (
            y.round() as i64,
            ((y + h).round() as i64).max(y.round() as i64 + 1),
        );
        for y in top.max(0)..bottom.min(self.height as i64) {
            for x in left.max(0)..right.min(self.width as i64) {
                if let Some(colour) = colour(x, y) {
                    self.set(x, y, colour);
                }
            }
        }
    }
}

impl OriginDimensions for Pixels {
    fn size(&self) -> Size {
        Size::new(self.width as u32, self.height as u32)
    }
}

impl DrawTarget for Pixels {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        for Pixel(point, colour) in pixels {
            let colour = [colour.r(), colour.g(), colour.b()];
            self.set(point.x.into(), point.y.into(), colour);
        }
        Ok(())
    }
}

fn point(x: f64, y: f64) -> Point {
    Point::new(x.round() as i32, y.round() as i32)
}

impl Canvas for Pixels {
    fn rect(&mut self, at: [f64; 4], fill: Colour, _: &str) {
        self.fill(at, |_, _| Some([fill.0, fill.1, fill.2]));
    }

    fn hatch(&mut self, at: [f64; 4], _: &str) {
        self.fill(at, |x, y| match (x + y).rem_euclid(6) {
            0 | 1 => Some([0xcc, 0x33, 0x11]),
            2 | 3 => Some([0xff, 0xff, 0xff]),
            _ => None,
        });
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], colour: Colour) {
        let style = PrimitiveStyle::with_stroke(Rgb888::new(colour.0, colour.1, colour.2), 1);
        let Ok(()) = Line::new(point(x1, y1), point(x2, y2))
            .into_styled(style)
            .draw(self);
    }

    fn area(&mut self, points: &[(f64, f64)], fill: Colour) {
        // Columns of a curve and its floor: the last two points.
        let Some((floor, curve)) = points.split_last().map(|(last, rest)| (last.1, rest)) else {
            return;
        };
        for pair in curve.windows(2).filter(|pair| pair[1].0 > pair[0].0) {
            let (x, y) = pair[0];
            self.rect([x, y, pair[1].0 - x, floor - y], fill, "");
        }
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let style = MonoTextStyle::new(&FONT_6X10, Rgb888::new(0x22, 0x22, 0x22));
        let alignment = match anchor {
            Anchor::Start => Alignment::Left,
            Anchor::Middle => Alignment::Center,
            Anchor::End => Alignment::Right,
        };
        let text = crate::table::safe(text);
        let Ok(_) = Text::with_alignment(&text, point(x, y), style, alignment).draw(self);
    }
}

/// The picture as the bytes of a PNG file.
///
/// # Errors
/// If it would have too many pixels.
pub fn encode(layout: &Layout) -> anyhow::Result<Vec<u8>> {
    let (width, height) = size(layout);
    let (width, height) = (width.ceil() as usize, height.ceil() as usize);
    if width.saturating_mul(height) > MOST_PIXELS {
        anyhow::bail!(
            "a picture of {width} × {height} pixels is too large; give fewer --lanes or a smaller --width"
        );
    }
    let mut pixels = Pixels {
        width,
        height,
        bytes: vec![0xff; width * height * 3],
    };
    draw(layout, &mut pixels);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels.bytes)?;
    writer.finish()?;
    Ok(bytes)
}
