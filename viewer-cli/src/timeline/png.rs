//! The timeline as PNG: a canvas of pixels.

use std::sync::Arc;

use annals_analysis::Colour;
use rustc_hash::FxHashMap;
use tiny_skia::{
    Color, FillRule, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke as PenStroke,
    Transform,
};

use super::Layout;
use super::font::{font, text_width};
use super::picture::{Canvas, Hatch, RED, Stroke, TextStyle, draw, size};
use crate::svg::Anchor;
use crate::table::safe;

/// Pictures have no more pixels (256 MiB in memory).
const MOST_PIXELS: u64 = 1 << 26;

/// Pixels of the file for one of the layout, if that is not too much.
const SCALE: u32 = 2;

/// A letter, as a picture of its opacity.
struct Glyph {
    /// From the pen to the left edge, pixels.
    left: i32,
    /// From the baseline up to the bottom edge, pixels.
    bottom: i32,
    width: usize,
    height: usize,
    advance: f32,
    opacity: Arc<[u8]>,
}

struct Pixels {
    map: Pixmap,
    scale: f32,
    /// By letter and the bits of its size.
    glyphs: FxHashMap<(char, u32), Glyph>,
}

fn paint(colour: Colour, opacity: f64) -> Paint<'static> {
    let Colour(r, g, b) = colour;
    let mut paint = Paint::default();
    paint.set_color_rgba8(r, g, b, (opacity.clamp(0.0, 1.0) * 255.0).round() as u8);
    paint
}

impl Pixels {
    fn transform(&self) -> Transform {
        Transform::from_scale(self.scale, self.scale)
    }

    /// Fills a box whose edges lie on pixels: what is in the picture has at least one.
    fn fill(&mut self, [x, y, width, height]: [f64; 4], paint: &Paint<'_>) {
        let scale = f64::from(self.scale);
        let edge = |at: f64| (at * scale).round();
        let (left, top) = (edge(x), edge(y));
        let right = edge(x + width).max(left + 1.0);
        let bottom = edge(y + height).max(top + 1.0);
        let rect = Rect::from_ltrb(left as f32, top as f32, right as f32, bottom as f32);
        if let Some(rect) = rect {
            self.map.fill_rect(rect, paint, Transform::identity(), None);
        }
    }

    /// Mixes a colour into a pixel.
    fn blend(&mut self, x: i64, y: i64, colour: Colour, opacity: u8) {
        let (width, height) = (i64::from(self.map.width()), i64::from(self.map.height()));
        if !(0..width).contains(&x) || !(0..height).contains(&y) || opacity == 0 {
            return;
        }
        let pixel = &mut self.map.pixels_mut()[(y * width + x) as usize];
        let share = u32::from(opacity);
        let mix = |new: u8, old: u8| {
            let sum = u32::from(new) * share + u32::from(old) * (255 - share);
            (sum / 255) as u8
        };
        let Colour(r, g, b) = colour;
        let (r, g, b) = (
            mix(r, pixel.red()),
            mix(g, pixel.green()),
            mix(b, pixel.blue()),
        );
        // The picture is opaque: its colours are premultiplied as they are.
        if let Some(mixed) = PremultipliedColorU8::from_rgba(r, g, b, 255) {
            *pixel = mixed;
        }
    }

    /// Draws a letter. Returns by how much the pen advances.
    fn draw_glyph(&mut self, c: char, pixels: f32, pen: f32, baseline: f32, colour: Colour) -> f32 {
        let glyph = self.glyphs.entry((c, pixels.to_bits())).or_insert_with(|| {
            let (metrics, opacity) = font().rasterize(c, pixels);
            Glyph {
                left: metrics.xmin,
                bottom: metrics.ymin,
                width: metrics.width,
                height: metrics.height,
                advance: metrics.advance_width,
                opacity: Arc::from(opacity),
            }
        });
        let (advance, width) = (glyph.advance, glyph.width);
        let left = pen.round() as i64 + i64::from(glyph.left);
        let top = baseline.round() as i64 - i64::from(glyph.bottom) - glyph.height as i64;
        let opacity = Arc::clone(&glyph.opacity);
        for (place, opacity) in opacity.iter().enumerate() {
            let (x, y) = (left + (place % width) as i64, top + (place / width) as i64);
            self.blend(x, y, colour, *opacity);
        }
        advance
    }
}

impl Canvas for Pixels {
    fn rect(&mut self, at: [f64; 4], fill: Colour, _: &str) {
        self.fill(at, &paint(fill, 1.0));
    }

    fn hatch(&mut self, [x, y, width, height]: [f64; 4], hatch: Hatch, _: &str) {
        let (colour, ground, distance, thickness) = match hatch {
            Hatch::Lost => (RED, 0.7, 8.5, 2.5),
            Hatch::Waiting => (Colour(0xff, 0xff, 0xff), 0.5, 7.0, 1.5),
        };
        self.fill(
            [x, y, width, height],
            &paint(Colour(0xff, 0xff, 0xff), ground),
        );
        // Stripes that rise to the right or fall, cut at the box by their ends.
        let opacity = if hatch == Hatch::Lost { 1.0 } else { 0.6 };
        let stripe = paint(colour, opacity);
        let pen = PenStroke {
            width: thickness,
            ..PenStroke::default()
        };
        let transform = self.transform();
        let mut start = x - height;
        start -= start.rem_euclid(distance);
        let mut path = PathBuilder::new();
        while start < x + width {
            let from = start.max(x);
            let to = (start + height).min(x + width);
            if from < to {
                let rise = |at: f64| match hatch {
                    Hatch::Lost => y + height - (at - start),
                    Hatch::Waiting => y + (at - start),
                };
                path.move_to(from as f32, rise(from) as f32);
                path.line_to(to as f32, rise(to) as f32);
            }
            start += distance;
        }
        if let Some(path) = path.finish() {
            self.map.stroke_path(&path, &stripe, &pen, transform, None);
        }
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], stroke: Stroke) {
        let mut path = PathBuilder::new();
        path.move_to(x1 as f32, y1 as f32);
        path.line_to(x2 as f32, y2 as f32);
        let pen = PenStroke {
            width: stroke.width as f32,
            ..PenStroke::default()
        };
        let transform = self.transform();
        if let Some(path) = path.finish() {
            let paint = paint(stroke.colour, stroke.opacity);
            self.map.stroke_path(&path, &paint, &pen, transform, None);
        }
    }

    fn polygon(&mut self, points: &[(f64, f64)], fill: Colour) {
        let mut path = PathBuilder::new();
        for (place, (x, y)) in points.iter().enumerate() {
            match place {
                0 => path.move_to(*x as f32, *y as f32),
                _ => path.line_to(*x as f32, *y as f32),
            }
        }
        path.close();
        let transform = self.transform();
        if let Some(path) = path.finish() {
            let paint = paint(fill, 1.0);
            self.map
                .fill_path(&path, &paint, FillRule::Winding, transform, None);
        }
    }

    fn circle(&mut self, x: f64, y: f64, radius: f64, fill: Colour) {
        let transform = self.transform();
        if let Some(path) = PathBuilder::from_circle(x as f32, y as f32, radius as f32) {
            let paint = paint(fill, 1.0);
            self.map
                .fill_path(&path, &paint, FillRule::Winding, transform, None);
        }
    }

    fn text(&mut self, x: f64, y: f64, style: TextStyle, text: &str) {
        let text = safe(text);
        let width = text_width(&text, style.size);
        let left = match style.anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let pixels = style.size as f32 * self.scale;
        let mut pen = left as f32 * self.scale;
        let baseline = y as f32 * self.scale;
        for c in text.chars() {
            pen += self.draw_glyph(c, pixels, pen, baseline, style.colour);
        }
    }
}

/// Returns the picture as the bytes of a PNG file, with two pixels for one of the layout unless it would be too large.
///
/// # Errors
/// If it would have too many pixels even with one for one.
pub fn encode(layout: &Layout, title: &str) -> anyhow::Result<Vec<u8>> {
    let (width, height) = size(layout);
    let (width, height) = (width.ceil() as u32, height.ceil() as u32);
    let pixels = |scale: u32| u64::from(width * scale) * u64::from(height * scale);
    let scale = if pixels(SCALE) <= MOST_PIXELS {
        SCALE
    } else {
        1
    };
    let map = (pixels(scale) <= MOST_PIXELS).then(|| Pixmap::new(width * scale, height * scale));
    let Some(mut map) = map.flatten() else {
        anyhow::bail!(
            "a picture of {width} × {height} pixels is too large; give fewer --lanes or a smaller --width"
        );
    };
    map.fill(Color::WHITE);
    let mut pixels = Pixels {
        map,
        scale: scale as f32,
        glyphs: FxHashMap::default(),
    };
    draw(layout, title, &mut pixels);
    let map = pixels.map;
    let opaque = map.pixels().iter();
    let bytes: Vec<u8> = opaque
        .flat_map(|p| [p.red(), p.green(), p.blue()])
        .collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, map.width(), map.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    writer.finish()?;
    Ok(file)
}
