// A colour for each phrase.

// Distinct to people with any colour vision (Okabe and Ito), in an order that starts with the loudest.
const FIRST = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"];
const GOLDEN_ANGLE = 137.508; // far from all hues before it, however many there are

/** As CSS writes it. */
export const colourOf = (index) => FIRST[index] ?? `hsl(${(index * GOLDEN_ANGLE) % 360} 75% 50%)`;
