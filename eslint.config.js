import eslint from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["build/", ".venv/"] },
  eslint.configs.recommended,
  {
    languageOptions: { globals: globals.browser },
    rules: {
      complexity: ["error", 10],
      eqeqeq: "error",
      "id-length": ["error", { properties: "never", exceptions: ["_", "a", "b", "k", "n", "x", "y"] }],
      "max-params": ["error", 7],
      "max-statements": ["error", 40],
      "no-nested-ternary": "error",
      "no-shadow": "error",
      "no-var": "error",
      "one-var": ["error", "never"],
      "prefer-const": "error",
    },
  },
];
