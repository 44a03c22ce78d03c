// Runs of collectives beside each other, under one clock.
import { together } from "../../views/static/together.mjs";
import { Player } from "./player.mjs";

export const Players = together(Player);
