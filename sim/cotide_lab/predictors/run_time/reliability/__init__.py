"""How accurate a run-time forecast will be: estimated by boosted trees and by their baselines."""
