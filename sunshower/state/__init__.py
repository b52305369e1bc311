"""Storage that outlives processes: the ports for trees and states, with their adapters."""
