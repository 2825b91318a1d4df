// Keeps for each canvas where its texts stand. A canvas that is drawn anew begins with a transformation.
const context = CanvasRenderingContext2D.prototype;
const { fillText, setTransform } = context;
context.setTransform = function (...given) {
  this.canvas.texts = [];
  return setTransform.apply(this, given);
};
context.fillText = function (text, x, y, ...more) {
  if (text) (this.canvas.texts ??= []).push({ text, left: x, right: x + this.measureText(text).width, top: y - 9, bottom: y + 2 });
  return fillText.call(this, text, x, y, ...more);
};
